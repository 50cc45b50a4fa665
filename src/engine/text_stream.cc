#include "engine/text_stream.h"

#include <utility>

namespace kipp {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::interrupted:
      break;
  }
  return "interrupted";
}

Result<void> validate_token_counts(int min_tokens, int max_tokens) {
  if (max_tokens < 0) {
    return fail(ErrorCode::invalid, "max_tokens: expected at least 0, found {}", max_tokens);
  }
  if (min_tokens < 0 || min_tokens > max_tokens) {
    return fail(ErrorCode::invalid, "min_tokens: expected 0 to {} (max_tokens), found {}",
                max_tokens, min_tokens);
  }
  return {};
}

TextStream::TextStream(const Tokenizer& tokenizer, StopMatcher stops, int min_tokens)
    : detokenizer_(tokenizer, /*skip_special=*/true),
      stops_(std::move(stops)),
      min_tokens_(min_tokens) {}

std::string TextStream::match(std::string text) {
  return n_pushed_ > min_tokens_ ? stops_.push(text) : text;
}

std::string TextStream::push(Token token) {
  ++n_pushed_;
  return match(detokenizer_.push(token));
}

std::string TextStream::finish() {
  std::string rest = match(detokenizer_.finish());
  rest += stops_.finish();
  return rest;
}

}  // namespace kipp
