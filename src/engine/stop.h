// Stop strings over a stream of text. A stop string may straddle tokens, so text that could still
// grow into one waits; emitted text can not be taken back. What is emitted in all is the text cut
// at the first byte of the earliest match of any stop string, however the text was split.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace kipp {

inline constexpr int kMaxStopStrings = 4;  // as OpenAI's API

class StopMatcher {
 public:
  // Refuses an empty stop string, one that is not UTF-8 (it could cut a character in two), and more
  // than kMaxStopStrings. Without any, everything passes.
  static Result<StopMatcher> create(std::vector<std::string> stops);

  // Appends text; returns what may be emitted now. After a match nothing more is emitted. A match
  // counts once no other stop string can match earlier: of "bc" and "abcd", "abc" has to wait for
  // its next byte.
  std::string push(std::string_view text);
  // The end of the stream: what waited, cut at a match that was still open.
  std::string finish();

  bool matched() const { return matched_; }
  const std::string& matched_stop() const { return matched_stop_; }

 private:
  // A stop string as its matching automaton (Knuth, Morris, Pratt), so that no stop string makes a
  // stream slow.
  struct Pattern {
    std::string text;
    std::vector<std::size_t> fallback;  // [i]: the longest proper prefix that ends text[0, i]
    std::size_t matched = 0;            // the longest prefix that ends the stream so far
  };

  std::string emit(std::size_t n);

  std::vector<Pattern> patterns_;
  std::string held_;
  std::size_t match_at_ = std::string::npos;  // in held_; npos: none yet
  std::string matched_stop_;
  bool matched_ = false;
};

}  // namespace kipp
