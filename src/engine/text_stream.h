// Drawn tokens on their way to the reader: bytes become characters, stop strings hold back what
// they may still swallow. Every generation goes through it, alone or beside others, so that all end
// at the same byte for the same reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/types.h"
#include "engine/stop.h"
#include "tokenizer/detokenizer.h"

namespace kipp {

enum class FinishReason : std::uint8_t {
  stop,         // a stop token or a stop string
  length,       // max_tokens, or no more room
  interrupted,  // the user asked
};

std::string_view to_string(FinishReason reason);

class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, StopMatcher stops);

  // The text that a token makes certain: nothing while a character or a possible stop string is
  // incomplete.
  std::string push(Token token);
  // What was still waiting. A stop string may complete only here.
  std::string finish();

  bool stopped() const { return stops_.matched(); }
  const std::string& matched_stop() const { return stops_.matched_stop(); }

 private:
  Detokenizer detokenizer_;
  StopMatcher stops_;
};

}  // namespace kipp
