// Trained weights, twenty prompts at once: the same text as one after the other.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "engine/engine.h"
#include "engine/generate.h"
#include "support/demo_model.h"
#include "support/engine_harness.h"

namespace kipp {
namespace {

constexpr int kPrompts = 20;
constexpr int kMaxTokens = 8;

Request prompt_of(int i) {
  static constexpr std::string_view kBeginnings[] = {"Once upon a time", "The little dog",
                                                     "In the garden,", "Tom and Anna"};
  const Tokenizer tokenizer;
  Request request;
  request.prompt = tokenizer.encode(
      fmt::format("{} {}", kBeginnings[static_cast<std::size_t>(i) % std::size(kBeginnings)],
                  std::string(static_cast<std::size_t>(i), 'a')),
      AddedTokens::as_text);
  request.sampling.temperature = 0;
  request.max_tokens = kMaxTokens;
  return request;
}

TEST(EngineDemo, TwentyAtOnceSayWhatEachSaysAlone) {
  std::vector<test::Received> received(kPrompts);
  {
    const auto engine =
        Engine::start(test::open_demo("cpu", 3 * kPrompts), {.max_sequences = kPrompts});
    ASSERT_TRUE(engine) << engine.error().message;
    for (int i = 0; i < kPrompts; ++i) {
      auto& mine = received[static_cast<std::size_t>(i)];
      ASSERT_TRUE((*engine)->submit(
          prompt_of(i), [&mine](RequestId, Event event) { mine.add(std::move(event)); }));
    }
    while ((*engine)->stats().finished + (*engine)->stats().failed < kPrompts) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  const auto model = test::open_demo("cpu", 3 * kPrompts);
  for (int i = 0; i < kPrompts; ++i) {
    SCOPED_TRACE(fmt::format("prompt {}", i));
    auto session = Session::create(model, 3 * kBlockPositions);
    ASSERT_TRUE(session);
    const Request request = prompt_of(i);
    const GenerateParams params{
        .sampling = request.sampling, .max_tokens = kMaxTokens, .stop = {}, .ignore_eos = false};
    const auto alone = generate(*model, *session, request.prompt, params, {});
    ASSERT_TRUE(alone) << alone.error().message;
    const test::Received& mine = received[static_cast<std::size_t>(i)];
    ASSERT_TRUE(mine.ended_once());
    ASSERT_TRUE(mine.finished);
    EXPECT_EQ(mine.text, alone->text);
    EXPECT_EQ(mine.finished->logits_hash, alone->logits_hash);
  }
}

}  // namespace
}  // namespace kipp
