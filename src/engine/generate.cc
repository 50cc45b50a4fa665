#include "engine/generate.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>

#include "engine/stop.h"

namespace kipp {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool cancelled(const GenerateHooks& hooks) {
  return hooks.cancel != nullptr && hooks.cancel->load(std::memory_order_relaxed);
}

// Hands on what the stream lets through.
void emit(std::optional<Token> token, const std::string& text, const GenerateHooks& hooks,
          Generation& out) {
  out.text += text;
  if (hooks.on_text) hooks.on_text({token, text});
}

// Draws until something ends it; the session stands behind the prompt.
Result<FinishReason> decode(const Model& model, Session& session, std::span<const Token> prompt,
                            const GenerateParams& params, const GenerateHooks& hooks,
                            TextStream& stream, Generation& out) {
  const auto stop_tokens = model.checkpoint().stop_tokens;
  while (static_cast<int>(out.tokens.size()) < params.max_tokens) {
    if (cancelled(hooks)) return FinishReason::interrupted;
    const Token token = sample(session.logits(), params.sampling, {prompt, out.tokens},
                               /*draw=*/out.tokens.size());
    out.tokens.push_back(token);
    if (!params.ignore_eos && std::ranges::find(stop_tokens, token) != stop_tokens.end()) {
      return FinishReason::stop;
    }
    emit(token, stream.push(token), hooks, out);
    if (stream.stopped()) return FinishReason::stop;
    const bool last = static_cast<int>(out.tokens.size()) == params.max_tokens ||
                      static_cast<int>(session.tokens().size()) == session.capacity();
    if (last) break;
    KIPP_TRY(session.append(token));
    ++out.decode_steps;
  }
  return FinishReason::length;
}

}  // namespace

Result<Generation> generate(const Model& model, Session& session, std::span<const Token> prompt,
                            const GenerateParams& params, const GenerateHooks& hooks) {
  KIPP_TRY(validate(params.sampling));
  if (params.max_tokens < 0) {
    return fail(ErrorCode::invalid, "max_tokens: expected at least 0, found {}", params.max_tokens);
  }
  KIPP_TRY_ASSIGN(stops, StopMatcher::create(params.stop));

  Generation out;
  out.prompt_tokens = static_cast<int>(prompt.size());
  int first_done = -1;
  int done = 0;
  const auto on_prompt = [&](int now_done, int total) {
    if (first_done < 0) first_done = now_done;
    done = now_done;
    if (hooks.on_prompt) hooks.on_prompt(now_done, total);
  };
  const auto prompt_start = Clock::now();
  const auto synced = session.sync(prompt, on_prompt, hooks.cancel);
  out.prompt_seconds = seconds_since(prompt_start);
  if (!synced && synced.error().code != ErrorCode::interrupted) {
    return tl::unexpected(synced.error());
  }
  out.reused_tokens = std::max(first_done, 0);
  out.evaluated_tokens = done - out.reused_tokens;
  if (!synced) {
    out.finish = FinishReason::interrupted;
    return out;
  }

  TextStream stream(model.tokenizer(), std::move(stops));
  const auto decode_start = Clock::now();
  KIPP_TRY_ASSIGN(finish, decode(model, session, prompt, params, hooks, stream, out));
  if (const std::string rest = stream.finish(); !rest.empty()) {
    emit(std::nullopt, rest, hooks, out);
  }
  out.decode_seconds = seconds_since(decode_start);
  // A stop string may complete only when the stream ends.
  out.finish = stream.stopped() ? FinishReason::stop : finish;
  if (stream.stopped()) out.matched_stop = stream.matched_stop();
  const auto logits = session.logits();
  out.logits_hash = XXH3_64bits(logits.data(), logits.size_bytes());
  return out;
}

}  // namespace kipp
