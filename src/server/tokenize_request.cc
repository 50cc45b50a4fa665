// Text to tokens and back for clients that count or cut. Both bound what they answer: an answer is
// many times as large as its request.
#include <algorithm>

#include "server/request_fields.h"
#include "tokenizer/detokenizer.h"

namespace kipp {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxTokensShown = 262144;  // the longest context of the family

void check_shown(std::string_view name, std::size_t tokens, Fields& fields) {
  if (tokens <= kMaxTokensShown) return;
  fields.report(name, fmt::format("expected at most {} tokens, found {}", kMaxTokensShown, tokens));
}

Json piece_of(std::string_view bytes) {
  if (std::string text = to_valid_utf8(bytes); text == bytes) return text;
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

}  // namespace

ApiResult<Json> tokenize(const Json& body, const ServedModel& model) {
  Problem problem;
  Fields fields(body, problem);
  read_model(fields, model, problem);
  const std::string* content = fields.string("content", kMaxTextBytes);
  const std::string* prompt = fields.string("prompt", kMaxTextBytes);
  if (content != nullptr && prompt != nullptr) {
    fields.report("prompt", "expected content or prompt, found both");
  }
  const std::string* text = content != nullptr ? content : prompt;
  if (text == nullptr) fields.report("content", "expected text, found nothing");
  // Qwen's tokenizer adds no tokens of its own: either value is true of it.
  fields.boolean("add_special");
  fields.boolean("add_special_tokens");
  const bool parse_special = fields.flag("parse_special");
  const bool with_pieces = fields.flag("with_pieces");
  fields.finish();
  if (problem) return tl::unexpected(problem.take());

  const auto tokens = model.tokenizer->encode(
      *text, parse_special ? AddedTokens::as_control : AddedTokens::as_text);
  Json list = Json::array();
  if (with_pieces) {
    check_shown("with_pieces", tokens.size(), fields);
    if (problem) return tl::unexpected(problem.take());
    for (const Token token : tokens) {
      list.push_back({{"id", token}, {"piece", piece_of(model.tokenizer->token_bytes(token))}});
    }
  } else {
    list = tokens;
  }
  return Json{{"tokens", std::move(list)},
              {"count", tokens.size()},
              {"max_model_len", model.context_length}};
}

ApiResult<Json> detokenize(const Json& body, const ServedModel& model) {
  Problem problem;
  Fields fields(body, problem);
  read_model(fields, model, problem);
  const Json* list = fields.list("tokens");
  if (list == nullptr) {
    fields.report("tokens", "expected a list of token ids, found nothing");
  } else {
    check_shown("tokens", list->size(), fields);
  }
  fields.finish();
  if (problem) return tl::unexpected(problem.take());

  const auto tokens = read_token_ids(*list, "tokens", problem);
  if (problem) return tl::unexpected(problem.take());
  return Json{{"content", to_valid_utf8(model.tokenizer->decode(tokens, false))}};
}

}  // namespace kipp
