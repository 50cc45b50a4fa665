#include "server/openai_request.h"

#include <cstddef>
#include <utility>

#include "server/request_fields.h"
#include "tokenizer/json_reader.h"

namespace kipp {
namespace {

constexpr int kDefaultMaxTokens = 16;  // of completions, as OpenAI's

// One prompt: text, whose tokens are ordinary ones whatever it says, or ids, which may name control
// tokens.
std::vector<Token> read_prompt(const Json& prompt, const std::string& path,
                               const ServedModel& model, Problem& problem) {
  std::vector<Token> tokens;
  if (prompt.is_string()) {
    tokens = model.tokenizer->encode(prompt.get_ref<const std::string&>(), AddedTokens::as_text);
  } else if (prompt.is_array()) {
    tokens = read_token_ids(prompt, path, problem);
  } else {
    problem.report(
        path, fmt::format("expected text or a list of token ids, found {}", described(prompt)));
  }
  if (tokens.empty()) problem.report(path, "expected at least one token, found none");
  return tokens;
}

// What each prompt is called, its tokens being in the call.
std::vector<std::string> read_prompts(const Json& prompt, const ServedModel& model,
                                      GenerateCall& call, Problem& problem) {
  const bool many = prompt.is_array() && !prompt.empty() && !prompt[0].is_number();
  if (!many) {
    call.prompts.push_back(read_prompt(prompt, "prompt", model, problem));
    return {"prompt"};
  }
  std::vector<std::string> names;
  if (prompt.size() > kMaxPrompts) {
    problem.report(
        "prompt", fmt::format("expected at most {} prompts, found {}", kMaxPrompts, prompt.size()));
    return names;
  }
  for (std::size_t i = 0; i < prompt.size() && !problem; ++i) {
    names.push_back(fmt::format("prompt[{}]", i));
    call.prompts.push_back(read_prompt(prompt[i], names.back(), model, problem));
  }
  return names;
}

}  // namespace

ApiResult<Json> parse_body(std::string_view body) {
  Problem problem;
  auto json = read_json<Json>(body, kMaxBodyDepth);
  if (!json) {
    problem.report(json.error().path, json.error().message);
  } else if (!json->is_object()) {
    problem.report({}, fmt::format("expected an object, found {}", described(*json)));
  }
  if (problem) return tl::unexpected(problem.take());
  return *std::move(json);
}

ApiResult<GenerateCall> parse_completion(const Json& body, const ServedModel& model,
                                         std::uint64_t fresh_seed) {
  Problem problem;
  Fields fields(body, problem);
  GenerateCall call;
  read_model(fields, model, problem);
  const Json* prompt = fields.value("prompt");
  if (prompt == nullptr) {
    fields.report("prompt", "expected text, token ids, or a list of either, found nothing");
  }
  read_common(fields, model, fresh_seed, call, problem);
  if (const auto best_of = fields.integer("best_of", 1, kMaxChoices);
      best_of.value_or(call.n) != call.n) {
    fields.report("best_of", fmt::format("expected the same as n, {}, found {}", call.n, *best_of));
  }
  const int max_tokens = read_max_tokens(fields, "max_tokens").value_or(kDefaultMaxTokens);
  call.logprobs = fields.integer("logprobs", 0, kMaxTopLogprobsText);
  call.request.top_logprobs = call.logprobs.value_or(-1);
  call.echo = fields.flag("echo");
  if (call.echo) call.request.prompt_logprobs = call.request.top_logprobs;
  if (const std::string* suffix = fields.string("suffix"); suffix != nullptr && !suffix->empty()) {
    fields.report("suffix", "expected none, kipp completes at the end only; found text");
  }
  fields.finish();
  if (problem) return tl::unexpected(problem.take());

  const auto names = read_prompts(*prompt, model, call, problem);
  if (!problem) fit_context(model, max_tokens, names, call, problem);
  if (problem) return tl::unexpected(problem.take());
  return call;
}

}  // namespace kipp
