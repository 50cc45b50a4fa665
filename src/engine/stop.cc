#include "engine/stop.h"

#include <algorithm>

#include "tokenizer/detokenizer.h"

namespace kipp {

Result<StopMatcher> StopMatcher::create(std::vector<std::string> stops) {
  if (stops.size() > kMaxStopStrings) {
    return fail(ErrorCode::invalid, "stop: expected at most {} strings, found {}", kMaxStopStrings,
                stops.size());
  }
  StopMatcher matcher;
  for (std::string& stop : stops) {
    const std::size_t index = matcher.patterns_.size();
    if (stop.empty()) {
      return fail(ErrorCode::invalid, "stop[{}]: expected text, found an empty string", index);
    }
    if (to_valid_utf8(stop) != stop) {
      return fail(ErrorCode::invalid, "stop[{}]: expected UTF-8, found other bytes", index);
    }
    Pattern pattern{std::move(stop), {0}, 0};
    for (std::size_t i = 1, n = 0; i < pattern.text.size(); ++i) {
      while (n > 0 && pattern.text[i] != pattern.text[n]) n = pattern.fallback[n - 1];
      if (pattern.text[i] == pattern.text[n]) ++n;
      pattern.fallback.push_back(n);
    }
    matcher.patterns_.push_back(std::move(pattern));
  }
  return matcher;
}

std::string StopMatcher::push(std::string_view text) {
  if (matched_) return {};
  for (const char c : text) {
    held_ += c;
    for (Pattern& p : patterns_) {
      while (p.matched > 0 && p.text[p.matched] != c) p.matched = p.fallback[p.matched - 1];
      if (p.text[p.matched] == c) ++p.matched;
      if (p.matched < p.text.size()) continue;
      p.matched = 0;  // the same stop string again, later, would change nothing
      // Of two that begin together the shorter is complete first.
      if (const std::size_t at = held_.size() - p.text.size(); at < match_at_) {
        match_at_ = at;
        matched_stop_ = p.text;
      }
    }
  }
  // Where the earliest stop string that is still incomplete begins.
  std::size_t open_at = held_.size();
  for (const Pattern& p : patterns_) open_at = std::min(open_at, held_.size() - p.matched);
  if (match_at_ <= open_at) return finish();
  return emit(open_at);
}

std::string StopMatcher::finish() {
  if (matched_) return {};
  matched_ = match_at_ != std::string::npos;
  return emit(std::min(match_at_, held_.size()));
}

std::string StopMatcher::emit(std::size_t n) {
  std::string front = held_.substr(0, n);
  held_.erase(0, n);
  if (match_at_ != std::string::npos) match_at_ -= n;
  return front;
}

}  // namespace kipp
