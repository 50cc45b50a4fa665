// What the engine promises: every request is answered as if it were alone, whatever runs beside it
// and however its prompt is cut; a full pool makes requests wait and harms nobody; values that
// cannot be served are refused at the door.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "support/engine_harness.h"
#include "support/property.h"
#include "support/sanitized.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using namespace std::chrono_literals;
using test::CoreHarness;
using test::expect_answer;
using test::expected_answer;
using test::greedy;
using test::HistoryLimits;
using test::Received;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kContext = 4096;

// Requests that share beginnings, end in every way and draw by every rule.
Request any_request(int longest_prompt) {
  const auto base = static_cast<unsigned>(*test::among(0, 3));
  Request request = greedy(test::random_tokens(static_cast<std::size_t>(longest_prompt), base),
                           *rc::gen::element(0, 1, 2, 5, 14));
  request.prompt.resize(static_cast<std::size_t>(*test::among(1, longest_prompt + 1)));
  const auto own = static_cast<std::size_t>(*test::among(0, 20));
  for (std::size_t i = 0; i < std::min(own, request.prompt.size()); ++i) {
    request.prompt[request.prompt.size() - 1 - i] = *test::among(0, 1000);
  }
  if (*rc::gen::arbitrary<bool>()) {
    request.sampling = {.temperature = 1, .top_k = 3, .logit_bias = {}, .seed = 5};
  }
  if (*test::among(0, 4) == 0) request.sampling.presence_penalty = 2;
  if (*test::among(0, 4) == 0) request.stop = {" t", "er"};
  if (*test::among(0, 3) == 0) request.min_tokens = *test::among(0, request.max_tokens + 1);
  if (*test::among(0, 8) == 0) request.prompt_logprobs = *test::among(0, 3);
  request.ignore_eos = *rc::gen::arbitrary<bool>();
  return request;
}

TEST(EngineCore, AnswersAreThoseOfEachRequestAlone) {
  test::property(100, [] {
    const int n_sequences = *test::among(1, 8);
    CoreHarness harness(HistoryLimits{.blocks = *test::among(5, 40),
                                      .max_step_tokens = *test::among(n_sequences, 80),
                                      .max_logit_rows = n_sequences,
                                      .context_length = kContext},
                        EngineOptions{.max_sequences = n_sequences,
                                      .prompt_tokens_beside_generation = *test::among(1, 80)});
    std::map<RequestId, Request> requests;
    std::vector<RequestId> cancelled;
    const int moves = *test::among(5, 60);
    for (int i = 0; i < moves; ++i) {
      switch (*test::among(0, 6)) {
        case 0:
        case 1: {
          if (requests.size() == 8) break;
          Request request = any_request(130);
          const RequestId id = harness.submit(request);
          requests.emplace(id, std::move(request));
          break;
        }
        case 2: {
          if (requests.empty()) break;
          const RequestId id = *test::among<RequestId>(1, requests.size() + 1);
          const bool open = !harness.received[id].ended();
          harness.core->cancel(id);
          RC_ASSERT(harness.received[id].ended_once());
          if (open) cancelled.push_back(id);
          break;
        }
        default:
          harness.step();
      }
    }
    harness.run();
    harness.expect_at_rest();
    const int capacity = std::min(kContext, harness.pool.total() * kBlockPositions);
    for (const auto& [id, request] : requests) {
      const Received& received = harness.received[id];
      if (std::ranges::find(cancelled, id) == cancelled.end()) {
        expect_answer(received, expected_answer(request, harness.stop_tokens, capacity));
        continue;
      }
      RC_ASSERT(received.ended_once());
      RC_ASSERT(received.how() == "interrupted" || received.how() == "stop");
    }
    RC_ASSERT(!testing::Test::HasFailure());
  });
}

TEST(EngineCore, CancelTakesEffectBeforeTheNextStepWhereverARequestIs) {
  const Request request = greedy(test::random_tokens(70, 1), 6);
  const Request neighbour = greedy(test::random_tokens(50, 2), 9);
  const auto expected = expected_answer(neighbour, {}, kContext);
  int ends_at = 0;
  for (int at = 0; ends_at == 0; ++at) {
    CoreHarness harness({.max_step_tokens = 16}, {.max_sequences = 4});
    const RequestId beside = harness.submit(neighbour);
    const RequestId id = harness.submit(request);
    int evaluated = 0;
    for (int i = 0; i < at; ++i) harness.step();
    harness.backend.on_eval = [&](std::span<const EvalItem> items) -> Result<void> {
      for (const EvalItem& item : items) evaluated += int{static_cast<RequestId>(item.seq) == id};
      return {};
    };
    if (harness.received[id].ended()) ends_at = at;
    harness.core->cancel(id);
    EXPECT_TRUE(harness.received[id].ended_once()) << "after " << at << " steps";
    EXPECT_TRUE(harness.pool.check());
    harness.run();
    EXPECT_EQ(evaluated, 0) << "after " << at << " steps";
    EXPECT_TRUE(harness.received[id].ended_once());
    EXPECT_EQ(harness.received[id].how(), ends_at > 0 ? "length" : "interrupted");
    expect_answer(harness.received[beside], expected);
    harness.expect_at_rest();
  }
  EXPECT_GT(ends_at, 10);  // so that queue, prompt and generation were all met
}

TEST(EngineCore, WhatDoesNotFitWaitsAndIsAnsweredLater) {
  // Every request needs five of the eight blocks.
  CoreHarness harness({.blocks = 8});
  std::vector<Request> requests;
  std::vector<RequestId> ids;
  for (unsigned i = 0; i < 6; ++i) {
    requests.push_back(greedy(test::random_tokens(120, i), 40));
    ids.push_back(harness.submit(requests.back()));
  }
  harness.step();
  EXPECT_EQ(harness.core->stats().running, 1);
  EXPECT_EQ(harness.core->stats().waiting, 5);
  harness.run();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    expect_answer(harness.received[ids[i]],
                  expected_answer(requests[i], harness.stop_tokens, 8 * kBlockPositions));
  }
  EXPECT_GT(harness.pool.stats().evictions, 0u);
  harness.expect_at_rest();
}

TEST(EngineCore, TellsHowThePromptIsRead) {
  CoreHarness harness({.max_step_tokens = 40});
  const auto prompt = test::random_tokens(100, 1);
  const auto progress = [&](RequestId id) {
    std::vector<std::array<int, 3>> out;
    for (const auto& p : harness.received[id].progress) out.push_back({p.done, p.total, p.cached});
    return out;
  };
  using P = std::array<int, 3>;
  const RequestId cold = harness.submit(greedy(prompt, 1));
  harness.run();
  EXPECT_THAT(progress(cold),
              ElementsAre(P{0, 100, 0}, P{40, 100, 0}, P{80, 100, 0}, P{100, 100, 0}));
  EXPECT_EQ(harness.received[cold].finished->usage.cached_tokens, 0);

  const RequestId warm = harness.submit(greedy(prompt, 1));
  harness.run();
  EXPECT_THAT(progress(warm), ElementsAre(P{96, 100, 96}, P{100, 100, 96}));
  const Usage& usage = harness.received[warm].finished->usage;
  EXPECT_EQ(usage.prompt_tokens, 100);
  EXPECT_EQ(usage.cached_tokens, 96);
  EXPECT_EQ(usage.generated_tokens, 1);
  EXPECT_EQ(harness.core->stats().prompt_tokens, 104u);
  EXPECT_EQ(harness.core->stats().cached_tokens, 96u);

  Request salted = greedy(prompt, 1);
  salted.salt = 1;
  const RequestId other = harness.submit(salted);
  harness.run();
  EXPECT_EQ(harness.received[other].finished->usage.cached_tokens, 0);
}

TEST(EngineCore, PenaltiesCountThePromptToo) {
  CoreHarness harness({.blocks = 128}, {.max_sequences = 8, .max_queue = 100});
  int changed = 0;
  for (unsigned i = 0; i < 60; ++i) {
    Request request = greedy(test::random_tokens(300, i), 2);
    // Of the ids that the model draws, so that some of its choices are in the prompt.
    for (Token& token : request.prompt) {
      token = test::HistoryBackend::kFirstDrawn +
              token % static_cast<Token>(test::HistoryBackend::kDrawn);
    }
    const auto plain = expected_answer(request, harness.stop_tokens, kContext);
    request.sampling.repetition_penalty = 1.2f;
    const auto expected = expected_answer(request, harness.stop_tokens, kContext);
    changed += int{expected.text != plain.text};
    const RequestId id = harness.submit(request);
    harness.run();
    expect_answer(harness.received[id], expected);
  }
  EXPECT_GT(changed, 0);
}

TEST(EngineCore, GivesLogprobsOfTheRowATokenWasDrawnFrom) {
  CoreHarness harness;
  Request request = greedy(test::random_tokens(5, 1), 3);
  request.ignore_eos = true;
  request.top_logprobs = 2;
  const Received& received = harness.received[harness.submit(request)];
  harness.run();
  ASSERT_EQ(received.logprobs.size(), 3u);
  auto all = request.prompt;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto logits = test::HistoryBackend::logits_after(all);
    const Token token = received.tokens[i];
    EXPECT_EQ(received.logprobs[i].chosen.token, token);
    EXPECT_EQ(received.logprobs[i].chosen.logprob, logprob_of(logits, token).logprob);
    ASSERT_EQ(received.logprobs[i].best.size(), 2u);
    EXPECT_EQ(received.logprobs[i].best[0].token, token);
    EXPECT_EQ(received.logprobs[i].best[1].token, top_logprobs(logits, 2)[1].token);
    all.push_back(token);
  }
}

// It has no text and so no event; whoever scores text counts on its entry all the same.
TEST(EngineCore, GivesLogprobsOfTheStopTokenWithTheEnd) {
  CoreHarness harness;
  Request request = greedy(test::random_tokens(5, 1), 3);
  request.top_logprobs = 2;
  const RequestId longer = harness.submit(request);
  request.sampling.logit_bias = {{test::kHarnessStop, 100.f}};
  const RequestId stopped = harness.submit(request);
  request.top_logprobs = -1;
  const RequestId unasked = harness.submit(request);
  harness.run();
  EXPECT_EQ(harness.received[stopped].how(), "stop");
  EXPECT_EQ(harness.received[stopped].finished->stop_token,
            logprobs_of(test::HistoryBackend::logits_after(request.prompt), test::kHarnessStop, 2));
  EXPECT_EQ(harness.received[longer].finished->stop_token, std::nullopt);
  EXPECT_EQ(harness.received[unasked].finished->stop_token, std::nullopt);
}

TEST(EngineCore, TimesQueuePromptAndGeneration) {
  CoreHarness harness({.max_step_tokens = 16}, {.max_sequences = 1});
  harness.backend.on_eval = [&](auto) -> Result<void> {
    harness.clock.advance(10ms);
    return {};
  };
  const RequestId first = harness.submit(greedy(test::random_tokens(16, 1), 3));
  const RequestId second = harness.submit(greedy(test::random_tokens(32, 2), 5));
  harness.run();
  const auto timings = [&](RequestId id) { return harness.received[id].finished->timings; };
  EXPECT_DOUBLE_EQ(timings(first).queue, 0);
  EXPECT_DOUBLE_EQ(timings(first).prompt, 0.01);
  EXPECT_DOUBLE_EQ(timings(first).decode, 0.02);
  EXPECT_DOUBLE_EQ(timings(second).queue, 0.03);
  EXPECT_DOUBLE_EQ(timings(second).prompt, 0.02);
  EXPECT_DOUBLE_EQ(timings(second).decode, 0.04);
  EXPECT_EQ(harness.core->stats().eval_time, 90ms);
  EXPECT_EQ(harness.core->stats().steps, 9u);
}

TEST(EngineCore, RefusesWhatItCannotServe) {
  CoreHarness harness({.blocks = 4}, {.max_sequences = 2, .max_queue = 1, .max_positions = 100});
  const auto refusal = [&](auto&& change) {
    Request request = greedy(test::random_tokens(5, 1), 3);
    change(request);
    const auto id = harness.try_submit(std::move(request));
    return id ? std::string("accepted") : id.error().message;
  };
  EXPECT_THAT(refusal([](Request& r) { r.prompt.clear(); }),
              HasSubstr("prompt: expected at least one token"));
  EXPECT_THAT(refusal([](Request& r) { r.prompt = test::random_tokens(101, 1); }),
              HasSubstr("prompt: expected at most 100 tokens, found 101"));
  EXPECT_THAT(refusal([](Request& r) { r.prompt[2] = kVocabRows; }), HasSubstr("prompt"));
  EXPECT_THAT(refusal([](Request& r) { r.max_tokens = -1; }), HasSubstr("max_tokens"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.top_p = 0; }), HasSubstr("top_p"));
  EXPECT_THAT(refusal([](Request& r) { r.stop = {""}; }), HasSubstr("stop"));
  EXPECT_THAT(refusal([](Request& r) { r.top_logprobs = 21; }), HasSubstr("top_logprobs"));
  EXPECT_TRUE(harness.received.empty());

  // None of these took a place: three are left.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(refusal([](Request&) {}), "accepted");
  EXPECT_THAT(refusal([](Request&) {}), HasSubstr("queue: expected fewer than 3 open requests"));
  const auto full = harness.try_submit(greedy({1}, 1));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::exhausted);
  harness.run();
  EXPECT_EQ(refusal([](Request& r) { r.prompt = test::random_tokens(100, 1); }), "accepted");
  EXPECT_EQ(refusal([](Request& r) { r.max_tokens = 2'000'000'000; }), "accepted");
  harness.run();
  for (const auto& [id, received] : harness.received) EXPECT_TRUE(received.ended_once());
}

TEST(EngineCore, WhoeverHearsOfTheEndFindsPlaceAndBlocksFree) {
  for (const bool fails : {false, true}) {
    CoreHarness harness({.blocks = 8}, {.max_sequences = 1, .max_queue = 0});
    if (fails)
      harness.backend.on_eval = [](auto) -> Result<void> { return fail(ErrorCode::io, "lost"); };
    int ends = 0;
    auto sequence = harness.core->prepare(
        greedy(test::random_tokens(40, 1), 1), [&](RequestId, const Event& event) {
          const bool ended =
              std::holds_alternative<Finished>(event) || std::holds_alternative<Failed>(event);
          ends += int{ended};
          EXPECT_EQ(harness.pool.available() == 8, ended);
          EXPECT_EQ(harness.core->prepare(greedy({1}, 1), {}).has_value(), ended);
        });
    ASSERT_TRUE(sequence);
    harness.core->submit(*std::move(sequence));
    harness.run();
    EXPECT_EQ(ends, 1);
  }
}

TEST(EngineCore, RefusesOptionsOutOfRange) {
  test::HistoryBackend backend({.max_step_tokens = 64, .max_logit_rows = 16});
  BlockPool pool(8);
  const Tokenizer tokenizer;
  const EngineParts parts{.backend = &backend,
                          .pool = &pool,
                          .tokenizer = &tokenizer,
                          .stop_tokens = {},
                          .context_length = 200};
  const auto refusal = [&](const EngineOptions& options) {
    const auto core = EngineCore::create(parts, options);
    return core ? std::string("accepted") : core.error().message;
  };
  EXPECT_EQ(refusal({.max_sequences = 16}), "accepted");
  EXPECT_THAT(refusal({.max_sequences = 17}), HasSubstr("max_sequences: expected 1 to 16"));
  EXPECT_THAT(refusal({.max_sequences = 9, .max_step_tokens = 8}), HasSubstr("max_sequences"));
  EXPECT_THAT(refusal({.max_sequences = 0}), HasSubstr("max_sequences"));
  EXPECT_THAT(refusal({.max_sequences = 1, .max_queue = -1}), HasSubstr("max_queue"));
  EXPECT_THAT(refusal({.max_sequences = 1, .max_step_tokens = 65}), HasSubstr("max_step_tokens"));
  EXPECT_THAT(refusal({.max_sequences = 1, .stream_slowdown = 0.5}), HasSubstr("stream_slowdown"));
  EXPECT_THAT(refusal({.max_sequences = 1, .prompt_tokens_beside_generation = 0}),
              HasSubstr("prompt_tokens_beside_generation"));
  EXPECT_THAT(refusal({.max_sequences = 1, .max_positions = 201}), HasSubstr("max_positions"));
}

TEST(EngineCore, CountsWhatItDid) {
  CoreHarness harness;
  harness.submit(greedy(test::random_tokens(40, 1), 4));
  harness.submit(greedy(test::random_tokens(8, 2), 2));
  harness.run();
  const EngineStats stats = harness.core->stats();
  EXPECT_EQ(stats.prompt_tokens, 48u);
  EXPECT_EQ(stats.generated_tokens, 6u);
  EXPECT_EQ(stats.finished, 2u);
  EXPECT_EQ(stats.failed, 0u);
  EXPECT_EQ(stats.steps, 4u);
  EXPECT_EQ(stats.pool.published, 1u);
}

// The real thing: a tiny model, a real backend, and generate() to compare with.
class EngineModel : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int kCapacity = 160;
  static constexpr int kBlocks = 24;

  static std::shared_ptr<Model> open() {
    return test::open_twin_model("tiny-tied", Scheme::bf16, kBlocks, GetParam());
  }

  // Of every kind; the first two share their first 64 tokens.
  static std::vector<Request> requests() {
    std::vector<Request> all;
    all.push_back(greedy(test::random_tokens(70, 1), 6));
    all.push_back(greedy(test::random_tokens(70, 1), 4));
    all.back().prompt[66] = 5;
    all.push_back(greedy(test::random_tokens(33, 2), 8));
    all.back().sampling.temperature = 50;  // a tiny model's logits are far apart
    all.back().sampling.seed = 3;
    all.push_back(greedy(test::random_tokens(3, 3), 7));
    all.back().sampling.logit_bias = {{9707, 100.f}};  // "Hello"
    all.back().stop = {"loHel"};
    all.push_back(greedy(test::random_tokens(20, 4), 0));
    all.push_back(greedy(test::random_tokens(150, 5), 40));  // ends where there is no more room
    all.back().ignore_eos = true;
    all.push_back(greedy(test::random_tokens(9, 6), 6));
    all.back().sampling.repetition_penalty = 4;
    return all;
  }

  static test::Expected generated(const std::shared_ptr<Model>& model, const Request& request) {
    auto session = Session::create(model, kCapacity);
    EXPECT_TRUE(session);
    const GenerateParams params{.sampling = request.sampling,
                                .max_tokens = request.max_tokens,
                                .stop = request.stop,
                                .ignore_eos = request.ignore_eos};
    const auto generation = generate(*model, *session, request.prompt, params, {});
    EXPECT_TRUE(generation) << generation.error().message;
    return {.text = generation->text,
            .reason = generation->finish,
            .matched_stop = generation->matched_stop,
            .generated = static_cast<int>(generation->tokens.size()),
            .logits_hash = *generation->logits_hash};
  }
  static const std::vector<test::Expected>& answers() {
    static std::map<std::string, std::vector<test::Expected>> of_backend;
    auto& all = of_backend[GetParam()];
    if (all.empty()) {
      const auto model = open();
      for (const Request& request : requests()) all.push_back(generated(model, request));
    }
    return all;
  }

  // One engine core over a model of its own.
  struct Served {
    explicit Served(const EngineOptions& options) : model(*Model::claim(open())) {
      auto created = EngineCore::create({.backend = &model->backend(),
                                         .pool = &model->pool(),
                                         .tokenizer = &model->tokenizer(),
                                         .stop_tokens = model->checkpoint().stop_tokens,
                                         .context_length = kCapacity},
                                        options);
      EXPECT_TRUE(created) << created.error().message;
      core = *std::move(created);
    }
    std::size_t submit(Request request) {
      const std::size_t at = received.size();
      received.emplace_back();
      auto sequence = core->prepare(std::move(request), [this, at](RequestId, Event event) {
        received[at].add(std::move(event));
      });
      EXPECT_TRUE(sequence) << sequence.error().message;
      ids.push_back((*sequence)->id());
      core->submit(*std::move(sequence));
      return at;
    }
    void run() {
      while (core->step()) EXPECT_TRUE(model->pool().check());
    }

    const std::shared_ptr<Model> model;
    std::unique_ptr<EngineCore> core;
    std::vector<Received> received;
    std::vector<RequestId> ids;
  };

  static void expect_all(const Served& served, std::size_t from = 0) {
    for (std::size_t i = 0; i < answers().size(); ++i) {
      SCOPED_TRACE(fmt::format("request {}", i));
      expect_answer(served.received[from + i], answers()[i]);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, EngineModel,
                         testing::ValuesIn(test::kThreadsWatched
                                               ? std::vector<const char*>{"cpu"}
                                               : std::vector<const char*>{"reference", "cpu"}),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(EngineModel, AloneOneAfterTheOther) {
  Served served({.max_sequences = 8});
  for (Request& request : requests()) {
    served.submit(std::move(request));
    served.run();
  }
  expect_all(served);
  EXPECT_EQ(served.received[1].finished->usage.cached_tokens, 64);
}

TEST_P(EngineModel, TogetherWhateverTheBudget) {
  for (const auto& [step, beside] : {std::pair{0, 32}, {9, 1}, {33, 7}}) {
    SCOPED_TRACE(fmt::format("{} tokens a step, {} beside generation", step, beside));
    Served served(
        {.max_sequences = 8, .max_step_tokens = step, .prompt_tokens_beside_generation = beside});
    for (Request& request : requests()) served.submit(std::move(request));
    served.run();
    expect_all(served);
  }
}

TEST_P(EngineModel, FromTheCacheAndAfterNeighboursAreCancelled) {
  Served served({.max_sequences = 8});
  // Neighbours with the same prompts, ended in the middle of whatever they do.
  for (Request& request : requests()) {
    request.max_tokens = 50;
    served.submit(std::move(request));
  }
  for (int i = 0; i < 4; ++i) served.core->step();
  const std::size_t from = served.received.size();
  for (Request& request : requests()) served.submit(std::move(request));
  for (std::size_t i = 0; i < from; ++i) {
    served.core->cancel(served.ids[i]);
    served.core->step();
  }
  served.run();
  expect_all(served, from);
  EXPECT_GT(served.model->pool().stats().hit_tokens, 0u);
}

TEST_P(EngineModel, SessionsAndAnEngineExcludeEachOther) {
  const auto model = open();
  {
    const auto session = Session::create(model, 32);
    ASSERT_TRUE(session);
    const auto engine = Engine::start(model, {});
    ASSERT_FALSE(engine);
    EXPECT_THAT(engine.error().message, HasSubstr("found 1 sessions over it"));
  }
  {
    const auto engine = Engine::start(model, {});
    ASSERT_TRUE(engine) << engine.error().message;
    const auto session = Session::create(model, 32);
    ASSERT_FALSE(session);
    EXPECT_THAT(session.error().message, HasSubstr("engine"));
    const auto second = Engine::start(model, {});
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message, HasSubstr("another engine"));
  }
  EXPECT_TRUE(Session::create(model, 32));
}

}  // namespace
}  // namespace kipp
