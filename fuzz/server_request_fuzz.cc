// Arbitrary bytes as the body of every endpoint that takes one, over checkpoints that differ in
// what they allow. What is accepted must be a request the engine can take; what is refused must say
// so in a sentence that can be sent.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/stop.h"
#include "model/step_plan.h"
#include "server/openai_request.h"

namespace {

using namespace kipp;

void check(bool holds) {
  if (!holds) std::abort();
}

void check_refusal(const ApiError& error) {
  check(error.status >= 400 && error.status < 500);
  check(!error.message.empty());
  check(!Json{{"message", error.message}, {"param", error.param}}.dump().empty());
}

void check_call(const ApiResult<GenerateCall>& parsed, const ServedModel& model) {
  if (!parsed) return check_refusal(parsed.error());
  const GenerateCall& call = *parsed;
  check(!call.prompts.empty() && call.prompts.size() <= kMaxPrompts);
  check(!call.chat || call.prompts.size() == 1);
  for (const auto& prompt : call.prompts) {
    check(!prompt.empty() && prompt.size() <= static_cast<std::size_t>(model.context_length));
    check(validate_tokens(prompt, "prompt").has_value());
  }
  check(call.n >= 1 && call.n <= kMaxChoices);
  const Request& request = call.request;
  check(request.prompt.empty());
  check(validate(request.sampling).has_value());
  check(StopMatcher::create(request.stop).has_value());
  check(request.max_tokens >= 0 && request.max_tokens <= model.context_length);
  check(request.min_tokens >= 0 && request.min_tokens <= request.max_tokens);
  check(request.top_logprobs >= -1 && request.top_logprobs <= kMaxTopLogprobs);
  check(request.prompt_logprobs >= -1 && request.prompt_logprobs <= kMaxTopLogprobs);
  check(call.logprobs.value_or(-1) == request.top_logprobs);
  check(call.stream || !(call.include_usage || call.continuous_usage || call.return_progress));
  check(call.splits_reasoning || !call.starts_in_thinking);
}

ServedModel served(std::string_view id) {
  static const Tokenizer tokenizer;
  return {.id = std::string(id),
          .tokenizer = &tokenizer,
          .checkpoint = *find_checkpoint(id),
          .context_length = 256};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ServedModel models[] = {served("kipp-demo"), served("qwen3-0.6b"),
                                       served("qwen3-4b-thinking-2507"), served("qwen3-4b-base")};
  const auto body = parse_body({reinterpret_cast<const char*>(data), size});
  if (!body) {
    check_refusal(body.error());
    return 0;
  }
  for (const ServedModel& model : models) {
    check_call(parse_completion(*body, model, 1), model);
    check_call(parse_chat(*body, model, 1), model);
    if (const auto rendered = parse_apply_template(*body, model); !rendered) {
      check_refusal(rendered.error());
    }
  }
  if (const auto tokens = tokenize(*body, models[0]); !tokens) check_refusal(tokens.error());
  if (const auto text = detokenize(*body, models[0]); !text) check_refusal(text.error());
  return 0;
}
