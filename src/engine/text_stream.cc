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

TextStream::TextStream(const Tokenizer& tokenizer, StopMatcher stops)
    : detokenizer_(tokenizer, /*skip_special=*/true), stops_(std::move(stops)) {}

std::string TextStream::push(Token token) { return stops_.push(detokenizer_.push(token)); }

std::string TextStream::finish() {
  std::string rest = stops_.push(detokenizer_.finish());
  rest += stops_.finish();
  return rest;
}

}  // namespace kipp
