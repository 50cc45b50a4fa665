// Sessions and engines over a cache of bit planes: hit or miss, whole or in chunks, alone or beside
// others, forked, cut back, saved and restored, in plenty or under pressure, the logits are bit for
// bit those of a model of its own that reads all tokens at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/engine_core.h"
#include "engine/generate.h"
#include "engine/session.h"
#include "support/engine_harness.h"
#include "support/sanitized.h"
#include "support/tiny_artifact.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using Tokens = std::vector<Token>;
using Logits = std::vector<float>;

// Bands so narrow that a few blocks are in all of them.
constexpr std::string_view kNarrow = "sink=1:int8,recent=1:int8,mid=1:int8/int4,far=int4/int2";
constexpr std::string_view kNearRows = "recent=2:bf16,mid=1:int8/int4,far=int4,up=0";

std::shared_ptr<Model> open_tiered(std::string_view backend, std::string_view policy, int kv_blocks,
                                   int kv_sequences) {
  const auto kv = KvPolicy::parse(policy);
  EXPECT_TRUE(kv) << kv.error().message;
  ModelOptions options;
  options.backend = backend;
  options.allow_synthetic = true;
  options.kv_blocks = kv_blocks;
  options.kv_sequences = kv_sequences;
  options.kv = *kv;
  auto model = Model::open(test::tiny_artifact_path("tiny-tied", Scheme::bf16), options);
  if (!model) throw std::runtime_error(model.error().message);
  return *std::move(model);
}

Tokens cut(Tokens tokens, int length) {
  tokens.resize(static_cast<std::size_t>(length));
  return tokens;
}
Tokens joined(Tokens tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

using Param = std::tuple<std::string_view, std::string_view>;  // backend, policy

class TieredSession : public testing::TestWithParam<Param> {
 protected:
  ~TieredSession() override { expect_sound(); }

  Session create(int capacity = 256, CacheSalt salt = 0) {
    auto session = Session::create(model_, capacity, salt);
    if (!session) throw std::runtime_error(session.error().message);
    return *std::move(session);
  }
  void expect_sound() {
    const auto sound = model_->pool().check();
    EXPECT_TRUE(sound) << sound.error().message;
  }

  // Of the last token, after the tokens were read at once by a session that found nothing.
  const Logits& alone(const Tokens& tokens) {
    Logits& logits = alone_[tokens];
    if (logits.empty()) {
      Session session = cold();
      EXPECT_EQ(session.sync(tokens).value_or(-1), 0);
      logits.assign(session.logits().begin(), session.logits().end());
    }
    return logits;
  }
  // What follows the prompt, greedily, one token at a time.
  Tokens continued(const Tokens& prompt, int n) {
    Session session = cold();
    EXPECT_TRUE(session.sync(prompt));
    Tokens drawn;
    while (static_cast<int>(drawn.size()) < n) {
      const auto logits = session.logits();
      drawn.push_back(static_cast<Token>(std::ranges::max_element(logits) - logits.begin()));
      EXPECT_TRUE(session.append(drawn.back()));
    }
    return drawn;
  }
  Session cold() {
    auto session = Session::create(private_model_, 320, ++salt_);
    if (!session) throw std::runtime_error(session.error().message);
    return *std::move(session);
  }
  testing::AssertionResult right(std::span<const float> found, const Tokens& tokens) {
    const Logits& expected = alone(tokens);
    if (found.size() == expected.size() &&
        std::memcmp(found.data(), expected.data(), found.size_bytes()) == 0) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "other logits after " << tokens.size() << " tokens";
  }
  testing::AssertionResult right(const Session& session) {
    return right(session.logits(), {session.tokens().begin(), session.tokens().end()});
  }

  const std::string_view backend_ = std::get<0>(GetParam());
  const std::string_view policy_ = std::get<1>(GetParam());
  std::shared_ptr<Model> model_ = open_tiered(backend_, policy_, 32, 4);
  const std::shared_ptr<Model> private_model_ = open_tiered(backend_, policy_, 10, 1);
  std::map<Tokens, Logits> alone_;
  CacheSalt salt_ = 0;
};

std::vector<Param> params() {
  std::vector<Param> all = {{"cpu", kNarrow}};
  // The others take the same ways through pool, tables and sessions.
  if (!test::kSanitized) {
    all.insert(all.end(), {{"reference", kNarrow}, {"cpu", "int8"}, {"cpu", kNearRows}});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Policies, TieredSession, testing::ValuesIn(params()),
                         [](const auto& tested) {
                           std::string name(std::get<1>(tested.param));
                           if (name == kNarrow) name = "Narrow";
                           if (name == kNearRows) name = "NearRows";
                           return std::string(std::get<0>(tested.param)) + "_" + name;
                         });

TEST_P(TieredSession, ReadsInAnyChunks) {
  const Tokens prompt = test::random_tokens(200, 1);
  {
    Session session = create();
    for (const Token token : prompt) ASSERT_TRUE(session.append(token));
    EXPECT_TRUE(right(session)) << "token by token";
  }
  for (const int chunk : {7, 32, 33, 96}) {
    Session session = create(256, static_cast<CacheSalt>(chunk));
    for (int n = chunk; n < 200 + chunk; n += chunk) {
      ASSERT_TRUE(session.sync(cut(prompt, std::min(n, 200))));
    }
    EXPECT_TRUE(right(session)) << "chunks of " << chunk;
  }
}

TEST_P(TieredSession, AHitIsAMiss) {
  const Tokens prompt = test::random_tokens(170, 2);
  {
    Session first = create();
    ASSERT_EQ(first.sync(prompt).value(), 0);
    EXPECT_TRUE(right(first));
  }
  const PoolStats before = model_->pool_stats();
  for (const int shared : {170, 129, 128, 97, 33}) {
    Session session = create();
    const Tokens tokens = joined(cut(prompt, shared), test::random_tokens(40, 3));
    const int reused = session.sync(tokens).value();
    EXPECT_EQ(reused, shared / kBlockPositions * kBlockPositions)
        << "with room for all, the planes of every block are still there";
    EXPECT_TRUE(right(session)) << shared;
    ASSERT_TRUE(session.append(5));
    EXPECT_TRUE(right(session)) << shared;
  }
  EXPECT_EQ(model_->pool_stats().demotions, before.demotions);
}

TEST_P(TieredSession, ScoresAndKeepsPartOfWhatItScored) {
  const Tokens prompt = test::random_tokens(94, 4), draft = test::random_tokens(8, 5);
  Session session = create();
  ASSERT_TRUE(session.sync(prompt));
  const auto rows = session.append_scored(draft);
  ASSERT_TRUE(rows) << rows.error().message;
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(right(rows->row(i), joined(prompt, cut(draft, i + 1)))) << i;
  }
  // Back into the block that the draft has completed.
  const Logits last(rows->row(0).begin(), rows->row(0).end());
  ASSERT_TRUE(session.keep(95, last));
  ASSERT_TRUE(session.append(17));
  EXPECT_TRUE(right(session));
  ASSERT_TRUE(session.append(18));
  EXPECT_TRUE(right(session));
}

TEST_P(TieredSession, GoesBackAnywhere) {
  const Tokens prompt = test::random_tokens(150, 6);
  Session session = create();
  ASSERT_TRUE(session.sync(prompt));
  for (const int length : {140, 128, 100, 64, 31, 1}) {
    ASSERT_TRUE(session.truncate(length));
    EXPECT_EQ(session.tokens().size(), static_cast<std::size_t>(length));
    ASSERT_TRUE(session.append(static_cast<Token>(length)));
    EXPECT_TRUE(right(session)) << length;
    ASSERT_TRUE(session.truncate(length)) << "what was appended";
  }
}

TEST_P(TieredSession, ForksGoTheirOwnWays) {
  Session session = create();
  ASSERT_TRUE(session.sync(test::random_tokens(100, 7)));
  auto fork = session.fork();
  ASSERT_TRUE(fork) << fork.error().message;
  for (Token t = 0; t < 40; ++t) {
    ASSERT_TRUE(session.append(t));
    ASSERT_TRUE(fork->append(t + 100));
  }
  EXPECT_TRUE(right(session));
  EXPECT_TRUE(right(*fork));
  const Tokens some = {1, 2, 3}, one = {4};
  const Session::Step together[] = {{&session, some}, {&*fork, one}};
  ASSERT_TRUE(Session::append_together(together));
  EXPECT_TRUE(right(session));
  EXPECT_TRUE(right(*fork));
}

TEST_P(TieredSession, ComesBackFromAFile) {
  const std::string path = (test::scratch_dir() / "tiered.session").string();
  {
    Session session = create();
    ASSERT_TRUE(session.sync(test::random_tokens(170, 8)));
    const auto saved = session.save(path);
    ASSERT_TRUE(saved) << saved.error().message;
  }
  model_ = open_tiered(backend_, policy_, 32, 4);
  Session session = create();
  const auto restored = session.restore(path);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_TRUE(right(session));
  for (Token t = 0; t < 30; ++t) ASSERT_TRUE(session.append(t));
  EXPECT_TRUE(right(session));
  Session other = create();
  EXPECT_EQ(other.sync(cut({session.tokens().begin(), session.tokens().end()}, 160)).value(), 128)
      << "restored blocks are found like others";
  EXPECT_TRUE(right(other));

  const auto elsewhere = open_tiered(backend_, "far=int4", 32, 1);
  auto refused = Session::create(elsewhere, 256);
  ASSERT_TRUE(refused);
  const auto mismatch = refused->restore(path);
  ASSERT_FALSE(mismatch) << "a file of another policy";
  EXPECT_THAT(mismatch.error().message, testing::HasSubstr("far=int4"));
}

TEST_P(TieredSession, IsRightUnderPressure) {
  // Room for two sessions and hardly anything else, so that what is cached is always being dropped.
  model_ = open_tiered(backend_, policy_, 14, 2);
  std::mt19937 random(9);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<Tokens> families = {test::random_tokens(200, 10), test::random_tokens(200, 11)};
  Session a = create(200), b = create(200);
  for (int round = 0; round < 20; ++round) {
    Session& session = below(2) == 0 ? a : b;
    switch (below(3)) {
      case 0: {
        const Tokens prompt =
            joined(cut(families[static_cast<std::size_t>(below(2))], 1 + below(190)),
                   test::random_tokens(5, 12));
        ASSERT_TRUE(session.sync(prompt));
        break;
      }
      case 1:
        if (session.tokens().size() < 2) continue;
        ASSERT_TRUE(session.truncate(1 + below(static_cast<int>(session.tokens().size()) - 1)));
        ASSERT_TRUE(session.append(static_cast<Token>(below(100))));
        break;
      default:
        if (session.tokens().size() >= 195) continue;
        ASSERT_TRUE(session.append(static_cast<Token>(below(100))));
    }
    EXPECT_TRUE(right(session)) << "round " << round;
    expect_sound();
  }
}

// Requests of an engine are answered as each alone would be, with every byte promised.
TEST_P(TieredSession, AnEngineAnswersAsIfAlone) {
  const auto tight = open_tiered(backend_, policy_, 14, 2);
  const Tokens shared = test::random_tokens(100, 13);
  std::vector<Request> requests;
  for (unsigned i = 0; i < 6; ++i) {
    requests.push_back(test::greedy(joined(shared, test::random_tokens(10 + 9 * i, 14 + i)), 24));
    requests.back().ignore_eos = true;
  }
  std::vector<Tokens> expected;
  for (const Request& request : requests) {
    expected.push_back(continued(request.prompt, request.max_tokens));
  }
  const EngineParts parts{.backend = &tight->backend(),
                          .pool = &tight->pool(),
                          .tokenizer = &tight->tokenizer(),
                          .stop_tokens = {},
                          .context_length = 256};
  for (const bool drafts : {false, true}) {
    EngineOptions options;
    options.max_sequences = 4;
    options.max_step_tokens = 64;
    options.stream_slowdown = 0;
    if (drafts) options.speculation = ngram_speculation(*tight, 8);
    const auto core = EngineCore::create(parts, options);
    ASSERT_TRUE(core) << core.error().message;
    std::map<RequestId, Tokens> answers;
    std::vector<RequestId> ids;
    for (const Request& request : requests) {
      auto sequence = (*core)->prepare(request, [&](RequestId id, Event event) {
        if (const auto* delta = std::get_if<TextDelta>(&event); delta && delta->token) {
          answers[id].push_back(*delta->token);
        }
        EXPECT_FALSE(std::holds_alternative<Failed>(event));
      });
      ASSERT_TRUE(sequence) << sequence.error().message;
      ids.push_back((*sequence)->id());
      (*core)->submit(*std::move(sequence));
    }
    while ((*core)->step()) {
      const auto sound = tight->pool().check();
      ASSERT_TRUE(sound) << sound.error().message;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(answers[ids[i]], expected[i]) << "request " << i << (drafts ? ", drafted" : "");
    }
  }
  EXPECT_EQ(tight->pool_stats().private_blocks, 0);
}

}  // namespace
}  // namespace kipp
