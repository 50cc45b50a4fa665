// Sessions of the C interface: each call is one of Session's, under its model's turn.
#include <algorithm>
#include <atomic>
#include <vector>

#include "capi/boundary.h"
#include "capi/handles.h"
#include "engine/generate.h"
#include "engine/sampler.h"

namespace kipp::capi {
namespace {

kipp_session* add_session(const std::shared_ptr<OpenModel>& of, Session session) {
  auto open = std::make_shared<OpenSession>();
  open->of = of;
  open->session = std::move(session);
  kipp_session* handle = add(std::move(open));
  ++of->open_sessions;  // last: what comes before may run out of memory
  return handle;
}

// A callback that asks to stop, as the flag that the engine looks at.
class Stop {
 public:
  void ask(std::int32_t answer) {
    if (answer != 0) flag_.store(true, std::memory_order_relaxed);
  }
  const std::atomic<bool>* flag() const { return &flag_; }
  Session::Progress progress(kipp_progress callback, void* user) {
    if (callback == nullptr) return {};
    return [this, callback, user](int done, int total) { ask(callback(user, done, total)); };
  }

 private:
  std::atomic<bool> flag_ = false;
};

Result<SamplingParams> sampling_params(const kipp_sampling* given) {
  KIPP_TRY_ASSIGN(sampling, read_optional(given, "sampling"));
  if (sampling.n_logit_bias < 0) {
    return fail(ErrorCode::invalid, "sampling.n_logit_bias: expected at least 0, found {}",
                sampling.n_logit_bias);
  }
  KIPP_TRY_ASSIGN(biases,
                  values(sampling.logit_bias, static_cast<std::size_t>(sampling.n_logit_bias),
                         "sampling.logit_bias"));
  SamplingParams params;
  params.temperature = sampling.temperature;
  params.top_k = sampling.top_k;
  if (sampling.top_p != 0) params.top_p = sampling.top_p;
  params.min_p = sampling.min_p;
  if (sampling.repetition_penalty != 0) params.repetition_penalty = sampling.repetition_penalty;
  params.presence_penalty = sampling.presence_penalty;
  params.frequency_penalty = sampling.frequency_penalty;
  for (const kipp_logit_bias& bias : biases) params.logit_bias.emplace_back(bias.token, bias.bias);
  params.seed = sampling.seed;
  KIPP_TRY(validate(params));
  return params;
}

Result<GenerateParams> generate_params(const kipp_generate_options& options, Model& model) {
  GenerateParams params;
  KIPP_TRY_ASSIGN(sampling, sampling_params(options.sampling));
  params.sampling = std::move(sampling);
  params.max_tokens = options.max_tokens;
  params.ignore_eos = options.ignore_eos != 0;
  if (options.max_draft != 0) params.speculation = ngram_speculation(model, options.max_draft);
  KIPP_TRY_ASSIGN(stops, values(options.stop, options.n_stop, "options.stop"));
  for (const char* stop : stops) {
    KIPP_TRY(need(stop, "options.stop"));
    params.stop.emplace_back(stop);
  }
  return params;
}

Result<std::span<const float>> known_logits(const Session& session) {
  const auto logits = session.logits();
  if (logits.empty()) {
    return fail(ErrorCode::invalid,
                "logits: expected a session whose last token was just evaluated, found one of {} "
                "tokens without",
                session.tokens().size());
  }
  return logits;
}

kipp_generation summary(const Generation& generation) {
  return {.size = 0,
          .finish = generation.finish == FinishReason::stop     ? KIPP_FINISH_STOP
                    : generation.finish == FinishReason::length ? KIPP_FINISH_LENGTH
                                                                : KIPP_FINISH_INTERRUPTED,
          .prompt_tokens = generation.prompt_tokens,
          .reused_tokens = generation.reused_tokens,
          .evaluated_tokens = generation.evaluated_tokens,
          .drawn_tokens = static_cast<std::int32_t>(generation.tokens.size()),
          .appended_tokens = generation.decode_steps,
          .drafted_tokens = static_cast<std::int32_t>(generation.speculation.drafted),
          .accepted_tokens = static_cast<std::int32_t>(generation.speculation.accepted),
          .prompt_seconds = generation.prompt_seconds,
          .decode_seconds = generation.decode_seconds};
}

}  // namespace
}  // namespace kipp::capi

using namespace kipp;
using namespace kipp::capi;

kipp_status kipp_session_open(kipp_model* model, const kipp_session_options* options,
                              kipp_session** session) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, find(model));
    KIPP_TRY(need(session, "session"));
    KIPP_TRY_ASSIGN(agreed, read_optional(options, "options"));
    KIPP_TRY_ASSIGN(turn, Turn::take(open));
    const std::shared_ptr<Model>& over = turn.model().model;
    const int whole = over->checkpoint().config.context_length;
    KIPP_TRY_ASSIGN(created, Session::create(over, agreed.capacity != 0 ? agreed.capacity : whole,
                                             agreed.salt));
    *session = add_session(open, std::move(created));
    return {};
  });
}

kipp_status kipp_session_close(kipp_session* session) {
  return guarded([&] { return close(session); });
}

kipp_status kipp_session_fork(kipp_session* session, kipp_session** fork) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    KIPP_TRY(need(fork, "fork"));
    KIPP_TRY_ASSIGN(forked, open.session().fork());
    *fork = add_session(open.open->of, std::move(forked));
    return {};
  });
}

kipp_status kipp_session_sync(kipp_session* session, const int32_t* prompt, size_t n,
                              kipp_progress progress, void* user, int32_t* reused) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    KIPP_TRY_ASSIGN(tokens, values(prompt, n, "prompt"));
    Stop stop;
    KIPP_TRY_ASSIGN(found, open.session().sync(tokens, stop.progress(progress, user), stop.flag()));
    if (reused != nullptr) *reused = found;
    return {};
  });
}

kipp_status kipp_session_append(kipp_session* session, int32_t token) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    return open.session().append(token);
  });
}

kipp_status kipp_session_append_scored(kipp_session* session, const int32_t* tokens, size_t n,
                                       float* logits) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    KIPP_TRY_ASSIGN(given, values(tokens, n, "tokens"));
    KIPP_TRY(need(logits, "logits"));
    KIPP_TRY_ASSIGN(rows, open.session().append_scored(given));
    for (int i = 0; i < rows.rows; ++i) {
      const auto row = rows.row(i);
      logits = std::ranges::copy(row, logits).out;
    }
    return {};
  });
}

kipp_status kipp_batch_append(const kipp_batch_item* items, size_t n_items) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(given, values(items, n_items, "items"));
    if (given.empty()) {
      return fail(ErrorCode::invalid, "items: expected at least one, found none");
    }
    KIPP_TRY_ASSIGN(first, SessionTurn::take(given.front().session));
    std::vector<std::shared_ptr<OpenSession>> open;  // keeps what the steps point to
    std::vector<Session::Step> steps;
    for (const kipp_batch_item& item : given) {
      KIPP_TRY_ASSIGN(session, find(item.session));
      if (session->of != first.open->of) {
        return fail(ErrorCode::invalid,
                    "items: expected sessions of one model, found those of two");
      }
      if (!session->session) {
        return fail(ErrorCode::invalid, "session: expected an open one, found one that is closed");
      }
      KIPP_TRY_ASSIGN(tokens, values(item.tokens, item.n, "items.tokens"));
      steps.push_back({.session = &*session->session, .tokens = tokens});
      open.push_back(std::move(session));
    }
    return Session::append_together(steps);
  });
}

kipp_status kipp_session_truncate(kipp_session* session, int32_t length) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    return open.session().truncate(length);
  });
}

kipp_status kipp_session_match(kipp_session* session, const int32_t* prompt, size_t n,
                               int32_t* length) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    KIPP_TRY_ASSIGN(tokens, values(prompt, n, "prompt"));
    KIPP_TRY(need(length, "length"));
    KIPP_TRY_ASSIGN(match, open.session().match(tokens));
    *length = match;
    return {};
  });
}

kipp_status kipp_session_tokens(kipp_session* session, int32_t* tokens, size_t capacity,
                                size_t* count) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    KIPP_TRY(need(count, "count"));
    return give(open.session().tokens(), tokens, capacity, count, "tokens");
  });
}

kipp_status kipp_session_logits(kipp_session* session, const float** logits) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    KIPP_TRY(need(logits, "logits"));
    KIPP_TRY_ASSIGN(row, known_logits(open.session()));
    *logits = row.data();
    return {};
  });
}

kipp_status kipp_session_save(kipp_session* session, const char* path) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    KIPP_TRY(need(path, "path"));
    return open.session().save(path);
  });
}

kipp_status kipp_session_load(kipp_session* session, const char* path) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    KIPP_TRY(need(path, "path"));
    return open.session().restore(path);
  });
}

kipp_status kipp_session_sample(kipp_session* session, const kipp_sampling* sampling,
                                int32_t prompt_tokens, int32_t* token) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    KIPP_TRY(need(token, "token"));
    KIPP_TRY_ASSIGN(params, sampling_params(sampling));
    KIPP_TRY_ASSIGN(logits, known_logits(open.session()));
    const auto tokens = open.session().tokens();
    const auto length = static_cast<std::int32_t>(tokens.size());
    if (prompt_tokens < 0 || prompt_tokens > length) {
      return fail(ErrorCode::invalid, "prompt_tokens: expected 0 to {}, found {}", length,
                  prompt_tokens);
    }
    const auto n = static_cast<std::size_t>(prompt_tokens);
    const auto generated = tokens.subspan(n);
    *token = sample(logits, params, {tokens.first(n), generated}, /*draw=*/generated.size());
    return {};
  });
}

kipp_status kipp_session_generate(kipp_session* session, const int32_t* prompt, size_t n,
                                  const kipp_generate_options* options,
                                  kipp_generation* generation) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, SessionTurn::take(session));
    KIPP_TRY_ASSIGN(tokens, values(prompt, n, "prompt"));
    KIPP_TRY_ASSIGN(agreed, read_struct(options, "options"));
    if (generation != nullptr) KIPP_TRY(checked_size(generation, "generation"));
    Model& model = *open.open->of->model;
    KIPP_TRY_ASSIGN(params, generate_params(agreed, model));
    Stop stop;
    GenerateHooks hooks;
    hooks.cancel = stop.flag();
    hooks.on_prompt = stop.progress(agreed.progress, agreed.user);
    if (agreed.text != nullptr) {
      hooks.on_text = [&](const TextEvent& event) {
        stop.ask(agreed.text(agreed.user, event.token.value_or(-1), event.text.data(),
                             event.text.size()));
      };
    }
    KIPP_TRY_ASSIGN(done, generate(model, open.session(), tokens, params, hooks));
    if (generation != nullptr) write_struct(generation, summary(done));
    return {};
  });
}
