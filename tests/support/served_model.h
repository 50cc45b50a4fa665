// Requests as text against a checkpoint of the registry, without its weights.
#pragma once

#include <string>
#include <string_view>

#include "server/openai_request.h"

namespace kipp::test {

// With the checkpoint's context unless another is given.
inline ServedModel served_model(std::string_view id, int context_length = 0) {
  static const Tokenizer tokenizer;
  const Checkpoint* checkpoint = *find_checkpoint(id);
  return {
      .id = std::string(id),
      .tokenizer = &tokenizer,
      .checkpoint = checkpoint,
      .context_length = context_length > 0 ? context_length : checkpoint->config.context_length};
}

inline constexpr std::uint64_t kFreshSeed = 4711;

inline ApiResult<GenerateCall> complete(const std::string& body,
                                        const ServedModel& model = served_model("kipp-demo")) {
  return parse_body(body).and_then(
      [&](const Json& json) { return parse_completion(json, model, kFreshSeed); });
}

inline ApiResult<GenerateCall> chat(const std::string& body,
                                    const ServedModel& model = served_model("kipp-demo")) {
  return parse_body(body).and_then(
      [&](const Json& json) { return parse_chat(json, model, kFreshSeed); });
}

// "400 max_tokens: expected ...", with " (param)" behind it where that is another than the sentence
// begins with; "taken" where nothing was refused.
template <class T>
std::string refusal(const ApiResult<T>& parsed) {
  if (parsed) return "taken";
  const ApiError& error = parsed.error();
  std::string text = fmt::format("{} {}", error.status, error.message);
  if (!error.message.starts_with(error.param + ": ")) text += fmt::format(" ({})", error.param);
  return text;
}

}  // namespace kipp::test
