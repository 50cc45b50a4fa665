// Stop strings over a stream of text. A stop string may straddle tokens, so text that could still grow into
// one waits; emitted text can not be taken back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace kipp {

inline constexpr int kMaxStopStrings = 4;  // as OpenAI's API

class StopMatcher {
 public:
  // An empty stop string or more than kMaxStopStrings is refused.
  static Result<StopMatcher> create(std::vector<std::string> stops);

  // Appends text; returns what may be emitted now. After a match nothing more is emitted.
  std::string push(std::string_view text);
  // The end of the stream without a match: what waited.
  std::string finish();
  bool matched() const { return matched_; }
  const std::string& matched_stop() const { return matched_stop_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string matched_stop_;
  bool matched_ = false;
};

}  // namespace kipp
