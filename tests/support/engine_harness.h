// The engine's core over a backend without a model, what its requests were told, and what they must
// be told.
#pragma once

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine_core.h"
#include "support/history_backend.h"

namespace kipp::test {

// A reader's view of one request.
struct Received {
  std::vector<PromptProgress> progress;
  std::vector<Logprobs> prompt_logprobs;  // [i]: of prompt token i + 1
  std::vector<Token> tokens;
  std::vector<Logprobs> logprobs;
  std::string text;
  std::optional<Finished> finished;
  std::optional<Error> failed;
  int terminals = 0;
  bool late = false;     // something came after the terminal event
  bool in_order = true;  // log-probabilities of the prompt, and before what was drawn

  void add(Event event) {
    late = late || terminals > 0;
    if (auto* prompt = std::get_if<PromptProgress>(&event)) {
      progress.push_back(*prompt);
    } else if (auto* scored = std::get_if<PromptLogprobs>(&event)) {
      in_order = in_order && !scored->tokens.empty() && tokens.empty() &&
                 scored->first == static_cast<int>(prompt_logprobs.size()) + 1;
      std::ranges::move(scored->tokens, std::back_inserter(prompt_logprobs));
    } else if (auto* delta = std::get_if<TextDelta>(&event)) {
      if (delta->token) tokens.push_back(*delta->token);
      if (delta->logprobs) logprobs.push_back(*delta->logprobs);
      text += delta->text;
    } else if (auto* end = std::get_if<Finished>(&event)) {
      ++terminals;
      finished = *end;
    } else {
      ++terminals;
      failed = std::get<Failed>(event).error;
    }
  }
  bool ended() const { return terminals > 0; }
  bool ended_once() const { return terminals == 1 && !late && in_order; }
  // "stop", "length", "interrupted" or "failed".
  std::string how() const {
    return finished ? std::string(to_string(finished->reason)) : failed ? "failed" : "open";
  }
};

// Some log-probabilities of a prompt: working all of them out takes long.
struct ExpectedLogprobs {
  std::size_t n = 0;                     // of tokens, all of them
  std::map<std::size_t, Logprobs> some;  // [i]: of prompt token i + 1
};

struct Expected {
  std::string text;
  FinishReason reason = FinishReason::length;
  std::string matched_stop;
  int generated = 0;
  std::uint64_t logits_hash = 0;
  ExpectedLogprobs prompt_logprobs = {};
};

inline ExpectedLogprobs expected_prompt_logprobs(const Request& request) {
  ExpectedLogprobs expected;
  if (request.prompt_logprobs < 0) return expected;
  expected.n = request.prompt.size() - 1;
  if (expected.n == 0) return expected;
  for (const std::size_t i : {std::size_t{0}, expected.n / 3, expected.n / 2, expected.n - 1}) {
    const auto logits = HistoryBackend::logits_after(std::span(request.prompt).first(i + 1));
    expected.some[i] = logprobs_of(logits, request.prompt[i + 1], request.prompt_logprobs);
  }
  return expected;
}

// What the history backend's model answers, worked out without engine, blocks or batches.
inline Expected expected_answer(const Request& request, std::span<const Token> stop_tokens,
                                int capacity) {
  const Tokenizer tokenizer;
  TextStream text(tokenizer, *StopMatcher::create(request.stop), request.min_tokens);
  if (request.ignore_eos) stop_tokens = {};
  std::vector<Token> all = request.prompt;
  Expected expected;
  std::vector<float> logits = HistoryBackend::logits_after(all);
  while (expected.generated < request.max_tokens) {
    const auto prompt = std::span(all).first(request.prompt.size());
    const auto drawn = std::span(all).subspan(request.prompt.size());
    const bool may_stop = expected.generated >= request.min_tokens;
    const auto barred = may_stop ? std::span<const Token>() : stop_tokens;
    const Token token = sample(logits, request.sampling, {prompt, drawn, barred}, drawn.size());
    all.push_back(token);
    ++expected.generated;
    if (std::ranges::find(stop_tokens, token) != stop_tokens.end()) {
      expected.reason = FinishReason::stop;
      break;
    }
    expected.text += text.push(token);
    if (text.stopped() || expected.generated == request.max_tokens ||
        static_cast<int>(all.size()) > capacity) {
      break;
    }
    logits = HistoryBackend::logits_after(all);
  }
  expected.text += text.finish();
  if (text.stopped()) expected.reason = FinishReason::stop;
  expected.matched_stop = text.matched_stop();
  expected.logits_hash = XXH3_64bits(logits.data(), logits.size() * sizeof(float));
  expected.prompt_logprobs = expected_prompt_logprobs(request);
  return expected;
}

inline void expect_answer(const Received& received, const Expected& expected) {
  ASSERT_TRUE(received.ended_once());
  ASSERT_TRUE(received.finished) << received.failed->message;
  EXPECT_EQ(received.text, expected.text);
  EXPECT_EQ(received.finished->reason, expected.reason);
  EXPECT_EQ(received.finished->matched_stop, expected.matched_stop);
  EXPECT_EQ(received.finished->usage.generated_tokens, expected.generated);
  EXPECT_EQ(received.finished->logits_hash, expected.logits_hash);
  ASSERT_EQ(received.prompt_logprobs.size(), expected.prompt_logprobs.n);
  for (const auto& [i, logprobs] : expected.prompt_logprobs.some) {
    EXPECT_EQ(received.prompt_logprobs[i], logprobs) << "of prompt token " << i + 1;
  }
}

class ManualClock final : public Clock {
 public:
  Time now() const override { return Time(now_.load()); }
  void advance(Time by) { now_.fetch_add(by.count()); }

 private:
  std::atomic<Time::rep> now_ = 0;
};

inline constexpr Token kHarnessStop = 1001;  // drawn once in a while

inline Request greedy(std::vector<Token> prompt, int max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  return request;
}

// Everything on the caller's thread.
class CoreHarness {
 public:
  explicit CoreHarness(const HistoryLimits& limits = {}, EngineOptions options = {})
      : backend(limits), pool(limits.blocks) {
    options.stream_slowdown = 0;  // what a step reads is to depend on no time
    const EngineParts parts{.backend = &backend,
                            .pool = &pool,
                            .tokenizer = &tokenizer_,
                            .stop_tokens = stop_tokens,
                            .context_length = limits.context_length,
                            .clock = &clock};
    auto created = EngineCore::create(parts, options);
    EXPECT_TRUE(created) << created.error().message;
    core = *std::move(created);
  }

  Result<RequestId> try_submit(Request request) {
    KIPP_TRY_ASSIGN(sequence, core->prepare(std::move(request), [this](RequestId id, Event event) {
      received[id].add(std::move(event));
    }));
    const RequestId id = sequence->id();
    received[id];
    core->submit(std::move(sequence));
    return id;
  }
  RequestId submit(Request request) {
    const auto id = try_submit(std::move(request));
    EXPECT_TRUE(id) << id.error().message;
    return *id;
  }

  // A step, after which the pool must be sound.
  bool step() {
    const bool stepped = core->step();
    const auto sound = pool.check();
    EXPECT_TRUE(sound) << sound.error().message;
    return stepped;
  }
  int run() {
    int steps = 0;
    while (step()) ++steps;
    return steps;
  }
  // Nobody holds blocks any more.
  void expect_at_rest() const {
    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.reserved, 0);
    EXPECT_EQ(stats.private_blocks, 0);
    EXPECT_EQ(stats.pinned, 0);
    EXPECT_EQ(core->stats().running + core->stats().waiting, 0);
  }

  const std::vector<Token> stop_tokens = {kHarnessStop};
  HistoryBackend backend;
  BlockPool pool;
  ManualClock clock;
  std::map<RequestId, Received> received;
  std::unique_ptr<EngineCore> core;

 private:
  const Tokenizer tokenizer_;
};

}  // namespace kipp::test
