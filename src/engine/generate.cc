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

// What a generation draws from, and who hears of it.
struct Decoding {
  const Model& model;
  std::span<const Token> prompt;
  const GenerateParams& params;
  const GenerateHooks& hooks;
  TextStream& stream;
  Generation& out;

  std::span<const Token> stop_tokens() const {
    if (params.ignore_eos) return {};
    return model.checkpoint().stop_tokens;
  }

  // One token from a row of logits, unless the generation is over. `full`: nothing can be evaluated
  // behind this row. Why the generation ends, if it does.
  std::optional<FinishReason> draw(std::span<const float> logits, bool full) const {
    const auto n_drawn = [this] { return static_cast<int>(out.tokens.size()); };
    if (n_drawn() == params.max_tokens) return FinishReason::length;
    if (cancelled(hooks)) return FinishReason::interrupted;
    const auto stops = stop_tokens();
    const auto barred = n_drawn() < params.min_tokens ? stops : std::span<const Token>();
    const Token token = sample(logits, params.sampling, {prompt, out.tokens, barred},
                               /*draw=*/out.tokens.size());
    out.tokens.push_back(token);
    if (std::ranges::find(stops, token) != stops.end()) return FinishReason::stop;
    emit(token, stream.push(token), hooks, out);
    if (stream.stopped()) return FinishReason::stop;
    if (n_drawn() == params.max_tokens || full) return FinishReason::length;
    return std::nullopt;
  }
};

// Draws until something ends it; the session stands behind the prompt.
Result<FinishReason> decode_plain(const Decoding& decoding, Session& session) {
  while (true) {
    const bool full = static_cast<int>(session.tokens().size()) == session.capacity();
    if (const auto ended = decoding.draw(session.logits(), full)) return *ended;
    KIPP_TRY(session.append(decoding.out.tokens.back()));
    ++decoding.out.decode_steps;
  }
}

// The same, with proposals evaluated behind the drawn tokens. After an error the session holds what
// plain decoding would have left.
Result<FinishReason> decode_speculative(const Decoding& decoding, Session& session,
                                        Speculator& speculator) {
  Generation& out = decoding.out;
  std::vector<Token> timeline(decoding.prompt.begin(), decoding.prompt.end());
  std::vector<Token> step;  // the token drawn last, then a proposal
  LogitsView rows{.data = session.logits().data(), .rows = 1};
  // Row i belongs to position `base` + i; the proposed tokens are step[1..].
  int base = static_cast<int>(session.tokens().size()) - 1;
  int row = 0;
  while (true) {
    const auto ended = decoding.draw(rows.row(row), base + row + 1 == session.capacity());
    const bool drawn = out.tokens.size() > timeline.size() - decoding.prompt.size();
    if (drawn) timeline.push_back(out.tokens.back());
    const bool proposed = row + 1 < rows.rows;
    if (!ended && proposed && step[static_cast<std::size_t>(row) + 1] == timeline.back()) {
      ++row;
      ++out.decode_steps;
      continue;
    }
    if (rows.rows > 1) {
      KIPP_TRY(session.keep(base + row + 1, rows.row(row)));
      speculator.settle(rows.rows - 1, row);
    }
    if (ended) return *ended;

    const int n_left = decoding.params.max_tokens - static_cast<int>(out.tokens.size());
    const int n_free = session.capacity() - static_cast<int>(timeline.size());
    const auto draft =
        speculator.propose(timeline, std::min({n_left - 1, n_free, session.max_scored() - 1}));
    base = static_cast<int>(timeline.size()) - 1;
    row = 0;
    step.assign(1, timeline.back());
    step.insert(step.end(), draft.begin(), draft.end());
    if (draft.empty()) {
      KIPP_TRY(session.append(timeline.back()));
      rows = {.data = session.logits().data(), .rows = 1};
    } else {
      KIPP_TRY_ASSIGN(scored, session.append_scored(step));
      rows = scored;
    }
    ++out.decode_steps;
  }
}

Result<FinishReason> decode(const Decoding& decoding, Session& session) {
  const GenerateParams& params = decoding.params;
  if (!params.speculation.drafter) return decode_plain(decoding, session);
  Speculator speculator(params.speculation,
                        {.sampling = params.sampling,
                         .n_prompt = static_cast<int>(decoding.prompt.size()),
                         .n_positions = session.capacity(),
                         .salt = session.salt()},
                        decoding.stop_tokens());
  auto finish = decode_speculative(decoding, session, speculator);
  decoding.out.speculation = speculator.stats();
  return finish;
}

}  // namespace

Result<Generation> generate(const Model& model, Session& session, std::span<const Token> prompt,
                            const GenerateParams& params, const GenerateHooks& hooks) {
  KIPP_TRY(validate(params.sampling));
  KIPP_TRY(validate(params.speculation));
  KIPP_TRY(validate_token_counts(params.min_tokens, params.max_tokens));
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

  TextStream stream(model.tokenizer(), std::move(stops), params.min_tokens);
  const auto decode_start = Clock::now();
  const Decoding decoding{.model = model,
                          .prompt = prompt,
                          .params = params,
                          .hooks = hooks,
                          .stream = stream,
                          .out = out};
  KIPP_TRY_ASSIGN(finish, decode(decoding, session));
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
