// Sessions over one pool: whatever they share, find, fork, lose to eviction and compute again,
// their logits are bit for bit those of a session that has a cache of its own and never saw
// anything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session.h"
#include "support/prefixes.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using test::spell;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr int kBlocks = 16;

using Tokens = std::vector<Token>;

Tokens cut(Tokens tokens, std::size_t length) {
  tokens.resize(std::min(length, tokens.size()));
  return tokens;
}
Tokens joined(Tokens tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

class SessionCache : public testing::TestWithParam<std::string_view> {
 protected:
  SessionCache() {
    // 0xff in every byte is NaN: what was never written and is read all the same shows.
    Backend& backend = model_->backend();
    const std::vector<std::byte> poison(backend.block_bytes(), std::byte{0xff});
    for (BlockId block = 0; block < kBlocks; ++block) {
      EXPECT_TRUE(backend.write_block(block, poison));
    }
  }
  ~SessionCache() override { expect_sound(); }

  Session create(int capacity = 128, CacheSalt salt = 0) {
    auto session = Session::create(model_, capacity, salt);
    EXPECT_TRUE(session) << session.error().message;
    return *std::move(session);
  }
  static Session forked(Session& session) {
    auto fork = session.fork();
    EXPECT_TRUE(fork) << fork.error().message;
    return *std::move(fork);
  }
  void expect_sound() {
    const auto sound = model_->pool().check();
    EXPECT_TRUE(sound) << sound.error().message;
  }
  PoolStats stats() const { return model_->pool_stats(); }

  // The logits are those of the session's tokens, computed in one step by a model of its own, whose
  // cache keeps nothing from one time to the next.
  testing::AssertionResult right(const Session& session) {
    const Tokens tokens(session.tokens().begin(), session.tokens().end());
    auto& expected = cold_[tokens];
    if (expected.empty()) {
      auto alone = Session::create(private_model_, 256, ++salt_);
      if (!alone || alone->sync(tokens).value_or(-1) != 0) {
        return testing::AssertionFailure() << "the cold session is not cold";
      }
      expected.assign(alone->logits().begin(), alone->logits().end());
    }
    const auto found = session.logits();
    if (found.size() != expected.size()) return testing::AssertionFailure() << "no logits";
    if (std::memcmp(found.data(), expected.data(), found.size_bytes()) == 0) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "other logits than computed alone";
  }

  const std::shared_ptr<Model> model_ =
      test::open_twin_model("tiny-tied", Scheme::bf16, kBlocks, GetParam());
  const std::shared_ptr<Model> private_model_ =
      test::open_twin_model("tiny-tied", Scheme::bf16, 8, GetParam());
  std::map<Tokens, std::vector<float>> cold_;
  CacheSalt salt_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Backends, SessionCache, testing::Values("reference", "cpu"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(SessionCache, AdoptedPrefixesEqualColdOnes) {
  const Tokens prompt = test::random_tokens(100, 1);
  {
    Session first = create();
    ASSERT_EQ(first.sync(prompt).value(), 0);
    EXPECT_TRUE(right(first));
  }
  EXPECT_EQ(stats().evictable, 3) << "its full blocks outlive the session";
  for (const std::size_t length : {100u, 97u, 96u, 65u, 64u, 33u, 32u, 1u}) {
    Session session = create();
    EXPECT_EQ(session.sync(cut(prompt, length)).value(),
              static_cast<int>((length - 1) / kBlockPositions * kBlockPositions))
        << length << " tokens: whole blocks, and never the last token";
    EXPECT_TRUE(right(session)) << length;
    ASSERT_TRUE(session.append(5));
    EXPECT_TRUE(right(session)) << length;
  }
  Tokens other = prompt;
  other[63] ^= 1;
  Session session = create();
  EXPECT_EQ(session.sync(other).value(), 32);
  EXPECT_TRUE(right(session));
}

TEST_P(SessionCache, LiveSessionsShareFullBlocks) {
  const Tokens prompt = test::random_tokens(70, 2);
  Session a = create(), b = create();
  ASSERT_TRUE(a.sync(prompt));
  EXPECT_EQ(b.sync(prompt).value(), 64);
  EXPECT_EQ(stats().pinned, 2);
  EXPECT_EQ(stats().private_blocks, 2) << "the open block of each";
  EXPECT_EQ(stats().hit_tokens, 64u);
  EXPECT_EQ(stats().lookup_tokens, 140u);
  ASSERT_TRUE(a.append(1));
  ASSERT_TRUE(b.append(2));
  EXPECT_TRUE(right(a));
  EXPECT_TRUE(right(b));
  // One that goes back into what it shares leaves the other alone.
  ASSERT_TRUE(a.truncate(40));
  ASSERT_TRUE(a.append(3));
  EXPECT_TRUE(right(a));
  ASSERT_TRUE(b.append(4));
  EXPECT_TRUE(right(b));
}

TEST_P(SessionCache, SessionsThatComputeTheSameKeepItOnce) {
  const Tokens prompt = test::random_tokens(34, 3);
  Session a = create(), b = create();
  for (const Token token : prompt) {
    ASSERT_TRUE(a.append(token));
    ASSERT_TRUE(b.append(token));
  }
  EXPECT_EQ(stats().pinned, 1);
  EXPECT_EQ(stats().private_blocks, 2);
  EXPECT_EQ(stats().deduplicated, 1u);
  EXPECT_TRUE(right(a));
  EXPECT_TRUE(right(b));
}

TEST_P(SessionCache, SaltsKeepTenantsApart) {
  const Tokens prompt = test::random_tokens(70, 4);
  Session mine = create(128, 1), theirs = create(128, 2), mine_too = create(128, 1);
  ASSERT_TRUE(mine.sync(prompt));
  EXPECT_EQ(theirs.sync(prompt).value(), 0);
  EXPECT_EQ(mine_too.sync(prompt).value(), 64);
  EXPECT_TRUE(right(theirs));
  EXPECT_TRUE(right(mine_too));
}

TEST_P(SessionCache, FindsItsOwnPastAgain) {
  const Tokens one = test::random_tokens(70, 5), two = test::random_tokens(90, 6);
  Session session = create();
  ASSERT_TRUE(session.sync(one));
  ASSERT_EQ(session.sync(two).value(), 0);
  EXPECT_TRUE(right(session));
  EXPECT_EQ(session.sync(one).value(), 64);
  EXPECT_TRUE(right(session));
  EXPECT_EQ(session.sync(joined(two, {1, 2})).value(), 64);
  EXPECT_TRUE(right(session));
}

TEST_P(SessionCache, ForksEqualSeparatelyEvaluatedSessions) {
  for (const std::size_t length : {1u, 31u, 32u, 33u, 64u, 70u}) {
    const Tokens prompt = test::random_tokens(length, 7);
    Session session = create();
    ASSERT_TRUE(session.sync(prompt));
    Session fork = forked(session);
    EXPECT_THAT(fork.tokens(), ElementsAreArray(prompt));
    EXPECT_EQ(fork.capacity(), session.capacity());
    EXPECT_TRUE(right(fork)) << "the logits are known without an evaluation";
    // Both write where the other's next token would stand, in turns.
    for (Token token = 1; token < 5; ++token) {
      ASSERT_TRUE(fork.append(token));
      ASSERT_TRUE(session.append(token + 100));
      EXPECT_TRUE(right(fork)) << length;
      EXPECT_TRUE(right(session)) << length;
    }
    const auto tokens = fork.tokens();
    EXPECT_EQ(tokens[length], 1);
    expect_sound();
  }
}

// Everything the other side of a fork holds is read after this side has overwritten all it may.
TEST_P(SessionCache, WritingOneSideOfAForkLeavesTheOther) {
  const Tokens prompt = test::random_tokens(50, 8);
  for (const bool fork_writes : {true, false}) {
    Session session = create();
    ASSERT_TRUE(session.sync(prompt));
    Session fork = forked(session);
    Session& writer = fork_writes ? fork : session;
    Session& reader = fork_writes ? session : fork;
    ASSERT_TRUE(writer.truncate(0));
    ASSERT_TRUE(writer.sync(test::random_tokens(128, 9)));
    ASSERT_TRUE(reader.append(1));
    EXPECT_TRUE(right(reader));
  }
}

TEST_P(SessionCache, AForkOutlivesItsOrigin) {
  const Tokens prompt = test::random_tokens(50, 10);
  auto session = std::make_unique<Session>(create());
  ASSERT_TRUE(session->sync(prompt));
  Session fork = forked(*session);
  session.reset();
  {
    Session flood = create((kBlocks - 4) * kBlockPositions);
    ASSERT_TRUE(flood.sync(test::random_tokens((kBlocks - 4) * kBlockPositions, 11)));
  }
  ASSERT_TRUE(fork.append(1));
  EXPECT_TRUE(right(fork));
}

TEST_P(SessionCache, AForkThatDoesNotFitIsRefused) {
  Session session = create(9 * kBlockPositions);
  const Tokens prompt = test::random_tokens(50, 12);
  ASSERT_TRUE(session.sync(prompt));
  const auto fork = session.fork();
  ASSERT_FALSE(fork);
  EXPECT_EQ(fork.error().code, ErrorCode::exhausted);
  EXPECT_THAT(fork.error().message,
              HasSubstr("KV cache: 288 positions need 9 blocks, 7 of 16 blocks are free"));
  EXPECT_TRUE(right(session));
}

TEST_P(SessionCache, EvictedAndRecomputedEqualsNeverEvicted) {
  const Tokens prompt = test::random_tokens(100, 13);
  {
    Session session = create();
    ASSERT_TRUE(session.sync(prompt));
  }
  {
    // Takes all but two blocks: of the prompt's three, the last goes first.
    Session flood = create(kBlocks * kBlockPositions);
    ASSERT_TRUE(flood.sync(test::random_tokens((kBlocks - 2) * kBlockPositions, 14)));
    EXPECT_EQ(stats().evictions, 1u);
  }
  Session session = create();
  EXPECT_EQ(session.sync(prompt).value(), 64);
  EXPECT_TRUE(right(session));
  {
    Session flood = create((kBlocks - 4) * kBlockPositions);
    ASSERT_TRUE(flood.sync(test::random_tokens((kBlocks - 4) * kBlockPositions, 15)));
  }
  ASSERT_TRUE(session.append(1));
  EXPECT_TRUE(right(session)) << "what is in use is not evicted";
}

TEST_P(SessionCache, AnyOrderOfAllocationGivesTheSame) {
  std::mt19937 random(1);
  std::vector<Session> sessions;
  for (int i = 0; i < 5; ++i) {
    sessions.push_back(create(96, static_cast<CacheSalt>(1 + i)));
    ASSERT_TRUE(sessions.back().sync(
        test::random_tokens(40 + random() % 50, static_cast<unsigned>(100 + i))));
  }
  // Gives blocks back in disorder, published and private ones.
  for (Session& session : sessions) {
    ASSERT_TRUE(session.truncate(static_cast<int>(random() % session.tokens().size())));
  }
  std::shuffle(sessions.begin(), sessions.end(), random);
  sessions.erase(sessions.begin() + 1, sessions.end());
  const Tokens prompt = test::random_tokens(300, 16);
  Session session = create(320);
  for (const std::size_t length : {70u, 150u, 230u}) {
    ASSERT_TRUE(session.sync(cut(prompt, length)));
    EXPECT_TRUE(right(session)) << length;
  }
}

// The pool holds exactly one session's blocks, as in `kipp chat`.
TEST_P(SessionCache, ASessionThatOwnsThePoolGoesAnywhere) {
  Session session = create(kBlocks * kBlockPositions);
  const Tokens prompt = test::random_tokens(kBlocks * kBlockPositions, 17);
  ASSERT_TRUE(session.sync(prompt));
  EXPECT_EQ(stats().pinned, kBlocks);
  for (const int length : {511, 500, 481, 480, 95, 70, 33, 1}) {
    ASSERT_TRUE(session.sync(prompt));
    ASSERT_TRUE(session.truncate(length));
    ASSERT_TRUE(session.sync(cut(prompt, static_cast<std::size_t>(length) / 2 + 1)));
    if (length < 200) {
      EXPECT_TRUE(right(session)) << length;
    }
    expect_sound();
  }
  ASSERT_TRUE(session.sync(test::random_tokens(kBlocks * kBlockPositions, 18)));
  EXPECT_EQ(session.append(1).error().code, ErrorCode::exhausted);
  EXPECT_EQ(session.sync(cut(prompt, 70)).value(), 0) << "nothing is left of it";
  EXPECT_TRUE(right(session));
}

TEST_P(SessionCache, DraftsAreNotPublishedUntilTheyStay) {
  Session session = create();
  const Tokens prompt = test::random_tokens(30, 19);
  ASSERT_TRUE(session.sync(prompt));
  ASSERT_TRUE(session.append_scored(test::random_tokens(40, 20)));
  EXPECT_EQ(stats().published, 0u);
  ASSERT_TRUE(session.truncate(31));
  ASSERT_TRUE(session.append(1));
  EXPECT_EQ(stats().published, 1u);
  EXPECT_TRUE(right(session));
  ASSERT_TRUE(session.append_scored(test::random_tokens(40, 21)));
  {
    Session fork = forked(session);
    EXPECT_EQ(stats().published, 2u);
    EXPECT_TRUE(right(fork));
  }
  ASSERT_TRUE(session.truncate(40));
  ASSERT_TRUE(session.append(2));
  EXPECT_TRUE(right(session));
}

TEST_P(SessionCache, WhatAnEndedSessionScoredIsFound) {
  const Tokens prompt = test::random_tokens(80, 22);
  {
    Session session = create();
    ASSERT_TRUE(session.append_scored(cut(prompt, 75)));
  }
  Session session = create();
  EXPECT_EQ(session.sync(prompt).value(), 64);
  EXPECT_TRUE(right(session));
}

// Random lives of several sessions in a pool that is too small for what they leave behind.
TEST_P(SessionCache, RandomLivesAgreeWithRecomputation) {
  std::mt19937 random(23);
  const auto below = [&](std::size_t n) { return random() % n; };
  const std::vector<std::string> stories = {"aaaa", "aab", "abab", "caa", "daac",
                                            "baca", "bb",  "cdc",  "dd"};
  std::vector<Session> sessions;
  const auto tokens_for = [&](int capacity) {
    return cut(spell(stories[below(stories.size())]),
               1 + below(std::min(static_cast<std::size_t>(capacity), std::size_t{128})));
  };
  int compared = 0, refused = 0;
  const int moves = GetParam() == "reference" ? 150 : 600;  // a move takes 20 ms there
  for (int move = 0; move < moves; ++move) {
    const std::size_t kind = below(16);
    if (sessions.empty() || (kind < 2 && sessions.size() < 10)) {
      const int capacity = 20 + static_cast<int>(below(140));
      const bool fits = blocks_for(capacity) <= model_->pool().available();
      auto session = Session::create(model_, capacity, below(4) == 0 ? 1 : 0);
      ASSERT_EQ(session.has_value(), fits);
      if (fits) {
        sessions.push_back(*std::move(session));
      } else {
        ++refused;
      }
      continue;
    }
    const std::size_t who = below(sessions.size());
    Session& session = sessions[who];
    const int room = session.capacity() - static_cast<int>(session.tokens().size());
    const auto more =
        cut(spell("a"), below(std::min<std::size_t>(static_cast<std::size_t>(room), 4) + 1));
    switch (kind) {
      case 2: {
        const bool fits = blocks_for(session.capacity()) <= model_->pool().available();
        auto fork = session.fork();
        ASSERT_EQ(fork.has_value(), fits);
        if (fits) sessions.push_back(*std::move(fork));
        break;
      }
      case 3:
        sessions.erase(sessions.begin() + static_cast<std::ptrdiff_t>(who));
        break;
      case 4:
      case 5:
        ASSERT_TRUE(session.truncate(static_cast<int>(below(session.tokens().size() + 1))));
        break;
      case 6:
        if (!more.empty()) {
          ASSERT_TRUE(session.append_scored(more));
        }
        break;
      case 7:
      case 8:
        if (room > 0) {
          ASSERT_TRUE(session.append(static_cast<Token>(7 + below(2))));
        }
        break;
      default: {
        const auto prompt = tokens_for(session.capacity());
        const auto reused = session.sync(prompt);
        ASSERT_TRUE(reused) << reused.error().message;
        ASSERT_LT(*reused, static_cast<int>(prompt.size()));
        ASSERT_THAT(session.tokens(), ElementsAreArray(prompt));
      }
    }
    expect_sound();
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      if (sessions[i].logits().empty() || (i != who && below(20) != 0)) continue;
      ASSERT_TRUE(right(sessions[i])) << "session " << i << " after move " << move;
      ++compared;
    }
  }
  // The lives were lively, also where they are a quarter as long.
  const bool all = moves == 600;
  EXPECT_GT(compared, moves / 2);
  EXPECT_GT(refused, 10);
  EXPECT_GT(stats().evictions, all ? 20u : 1u);
  EXPECT_GT(stats().deduplicated, all ? 3u : 1u);
  EXPECT_GT(stats().hit_tokens, all ? 1000u : 100u);
}

}  // namespace
}  // namespace kipp
