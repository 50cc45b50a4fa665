// JSON of the OpenAI shape into checked calls. Every field is either done or refused by name;
// nothing is ignored. A field that is null counts as absent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "server/generate_call.h"
#include "tokenizer/chat_template.h"

namespace kipp {

template <class T>
using ApiResult = tl::expected<T, ApiError>;

// The body as JSON. Refuses what is not UTF-8 JSON, nesting beyond kMaxBodyDepth, duplicate keys,
// unpaired surrogates, numbers beyond a double, and anything but an object. Linear time, but for
// the sorting of an object's keys; thread-safe.
inline constexpr int kMaxBodyDepth = 64;
ApiResult<Json> parse_body(std::string_view body);

inline constexpr int kMaxChoices = 8;          // n
inline constexpr int kMaxPrompts = 256;        // of one call of completions
inline constexpr int kMaxTopLogprobsText = 5;  // of completions; chat: kMaxTopLogprobs

// POST /v1/completions and /v1/chat/completions, of a body as parse_body() gives it. `fresh_seed`:
// for calls that name none. Tokenizes; may take a while for megabytes; thread-safe.
//
// Where a call is silent, sampling is the checkpoint's (of its generation_config.json; greedy where
// that says not to sample), and max_tokens is 16 for completions and all that fits for chat. More
// than fits is what fits.
ApiResult<GenerateCall> parse_completion(const Json& body, const ServedModel& model,
                                         std::uint64_t fresh_seed);
ApiResult<GenerateCall> parse_chat(const Json& body, const ServedModel& model,
                                   std::uint64_t fresh_seed);

// POST /apply-template: the prompt as the chat endpoint would render it, of that endpoint's fields
// that concern it.
struct RenderedPrompt {
  std::string text;
  std::vector<Token> tokens;
};
ApiResult<RenderedPrompt> parse_apply_template(const Json& body, const ServedModel& model);

// POST /tokenize {"content" or "prompt": text, "parse_special": false, "with_pieces": false},
// answered by {"tokens": [...], "count": n, "max_model_len": n}. parse_special makes <|im_start|>
// and its like control tokens. With pieces a token is {"id", "piece"}; a piece is text, or bytes
// where it is none.
ApiResult<Json> tokenize(const Json& body, const ServedModel& model);
// POST /detokenize {"tokens": [...]}, answered by {"content": text}.
ApiResult<Json> detokenize(const Json& body, const ServedModel& model);

}  // namespace kipp
