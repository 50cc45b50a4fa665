// Drawn tokens on their way to the reader: bytes become characters, stop strings hold back what
// they may still swallow. Every generation goes through it, alone or beside others, so that all end
// at the same byte for the same reason.
#pragma once

#include <cstddef>
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
inline constexpr std::size_t kFinishReasons = 3;

std::string_view to_string(FinishReason reason);

// How many tokens may be drawn, and how many before something else than max_tokens may end it.
// Refuses what is not 0 <= min_tokens <= max_tokens.
Result<void> validate_token_counts(int min_tokens, int max_tokens);

class TextStream {
 public:
  // In the text of the first `min_tokens` tokens no stop string is looked for: one that begins
  // there is none, since its beginning has gone out.
  TextStream(const Tokenizer& tokenizer, StopMatcher stops, int min_tokens = 0);

  // The text that a token makes certain: nothing while a character or a possible stop string is
  // incomplete.
  std::string push(Token token);
  // What was still waiting. A stop string may complete only here.
  std::string finish();

  bool stopped() const { return stops_.matched(); }
  const std::string& matched_stop() const { return stops_.matched_stop(); }

 private:
  // What may be emitted now that `text` became certain with the last token.
  std::string match(std::string text);

  Detokenizer detokenizer_;
  StopMatcher stops_;
  const int min_tokens_;
  int n_pushed_ = 0;
};

}  // namespace kipp
