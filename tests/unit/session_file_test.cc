// Saved sessions: what comes back computes the same bits, and what is not exactly what was saved is
// refused with the session left as it was.
#include "engine/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "engine/session.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr int kBlocks = 12;
constexpr int kCapacity = 128;
constexpr std::size_t kHeader = sizeof(SessionFileHeader);

std::shared_ptr<Model> open_model(std::string_view backend, Scheme scheme = Scheme::bf16) {
  auto model = test::open_twin_model("tiny-tied", scheme, kBlocks, backend);
  // 0xff in every byte is NaN: what was not restored and is read all the same shows.
  const std::vector<std::byte> poison(model->backend().block_bytes(), std::byte{0xff});
  for (BlockId block = 0; block < kBlocks; ++block) {
    EXPECT_TRUE(model->backend().write_block(block, poison));
  }
  return model;
}

Session create(const std::shared_ptr<Model>& model, int capacity = kCapacity) {
  auto session = Session::create(model, capacity);
  EXPECT_TRUE(session) << session.error().message;
  return *std::move(session);
}

std::vector<float> logits(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

std::string scratch(const std::string& name) { return (test::scratch_dir() / name).string(); }

class SessionFileTest : public testing::TestWithParam<std::string_view> {
 protected:
  // 70 tokens: two full blocks and one that is not.
  std::string save(std::size_t tokens = 70, const std::string& name = "saved") {
    Session session = create(model_);
    EXPECT_TRUE(session.sync(test::random_tokens(tokens, 1)));
    const auto done = session.save(scratch(name));
    EXPECT_TRUE(done) << done.error().message;
    return scratch(name);
  }
  std::string save_bytes(const std::vector<std::byte>& bytes) {
    test::write_file(scratch("edited"), bytes);
    return scratch("edited");
  }

  const std::shared_ptr<Model> model_ = open_model(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Backends, SessionFileTest, testing::Values("reference", "cpu"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(SessionFileTest, ComesBackInAnotherModelAndComputesTheSameBits) {
  for (const std::size_t n : {1u, 32u, 33u, 90u}) {
    const auto prompt = test::random_tokens(n, 1);
    Session before = create(model_);
    ASSERT_TRUE(before.sync(prompt));
    ASSERT_TRUE(before.save(scratch("whole")));

    const auto other = open_model(GetParam());  // has nothing of the first one's cache
    Session after = create(other);
    ASSERT_TRUE(after.sync(test::random_tokens(50, 2)));  // makes way
    const auto restored = after.restore(scratch("whole"));
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_THAT(after.tokens(), ElementsAreArray(prompt));
    EXPECT_EQ(logits(after), logits(before)) << n;
    for (const Token next : test::random_tokens(12, 3)) {
      ASSERT_TRUE(before.append(next));
      ASSERT_TRUE(after.append(next));
      ASSERT_EQ(logits(after), logits(before)) << "after " << before.tokens().size();
    }
    const auto sound = other->pool().check();
    EXPECT_TRUE(sound) << sound.error().message;
  }
}

TEST_P(SessionFileTest, ItsFullBlocksServeOtherSessions) {
  const std::string path = save();
  const auto other = open_model(GetParam());
  Session restored = create(other);
  ASSERT_TRUE(restored.restore(path));
  Session second = create(other);
  EXPECT_EQ(second.sync(test::random_tokens(70, 1)).value(), 64);
  EXPECT_EQ(logits(second), logits(restored));
}

TEST_P(SessionFileTest, NeitherEmptySessionsNorMissingLogitsAreSpecial) {
  Session session = create(model_);
  ASSERT_TRUE(session.save(scratch("empty")));
  ASSERT_TRUE(session.sync(test::random_tokens(70, 1)));
  ASSERT_TRUE(session.truncate(40));
  ASSERT_TRUE(session.save(scratch("cut")));

  ASSERT_TRUE(session.restore(scratch("empty")));
  EXPECT_TRUE(session.tokens().empty());
  EXPECT_TRUE(session.logits().empty());
  ASSERT_TRUE(session.restore(scratch("cut")));
  EXPECT_EQ(session.tokens().size(), 40u);
  EXPECT_TRUE(session.logits().empty());
  ASSERT_TRUE(session.append(5));
  Session cold = create(open_model(GetParam()));
  auto expected = test::random_tokens(70, 1);
  expected.resize(40);
  expected.push_back(5);
  ASSERT_TRUE(cold.sync(expected));
  EXPECT_EQ(logits(session), logits(cold));
}

// The same timeline gives the same bytes, whoever had its blocks before it.
TEST_P(SessionFileTest, HoldsNothingOfOtherSequences) {
  const auto poisoned = test::read_file(save(70, "poisoned"));
  const auto clean = test::open_twin_model("tiny-tied", Scheme::bf16, kBlocks, GetParam());
  Session session = create(clean);
  ASSERT_TRUE(session.sync(test::random_tokens(70, 1)));
  ASSERT_TRUE(session.save(scratch("clean")));
  EXPECT_TRUE(test::read_file(scratch("clean")) == poisoned);
}

// Over bit planes: blocks of one file hold what their distance from the end asks for.
constexpr int kTieredCapacity = 192;

std::shared_ptr<Model> open_tiered(std::string_view backend, std::string_view policy) {
  auto model = Model::open(test::tiny_artifact_path("tiny-tied", Scheme::bf16),
                           {.backend = std::string(backend),
                            .allow_synthetic = true,
                            .kv_blocks = 3 * kTieredCapacity / kBlockPositions,
                            .kv_sequences = 3,
                            .kv = KvPolicy::parse(policy).value()});
  EXPECT_TRUE(model) << model.error().message;
  return *std::move(model);
}

// Bands of a block or two, so that a short prompt has them all.
constexpr const char* kNarrowBands = "sink=1:int8,recent=1:int8,mid=1:int8/int4,far=int4/int2";
constexpr const char* kWideRecent = "sink=1:bf16,recent=2:bf16,mid=1:int8,far=int4,up=0+-1";

void comes_back_and_computes_the_same_bits(std::string_view backend, std::string_view policy,
                                           std::size_t n) {
  const auto prompt = test::random_tokens(n, 1);
  const auto model = open_tiered(backend, policy);
  Session before = create(model, kTieredCapacity);
  ASSERT_TRUE(before.sync(prompt));
  const auto cold = logits(before);
  const auto saved = before.save(scratch("tiered-whole"));
  ASSERT_TRUE(saved) << saved.error().message;

  const auto other = open_tiered(backend, policy);
  Session after = create(other, kTieredCapacity);
  ASSERT_TRUE(after.sync(test::random_tokens(34, 2)));  // makes way
  const auto restored = after.restore(scratch("tiered-whole"));
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(logits(after), cold) << n;
  // Its blocks serve others as far as their planes go.
  Session second = create(other, kTieredCapacity);
  ASSERT_TRUE(second.sync(prompt));
  EXPECT_EQ(logits(second), cold) << n;
  for (const Token next : test::random_tokens(22, 3)) {  // into the next block
    ASSERT_TRUE(before.append(next));
    ASSERT_TRUE(after.append(next));
    ASSERT_EQ(logits(after), logits(before)) << "after " << before.tokens().size();
  }
  const auto sound = other->pool().check();
  EXPECT_TRUE(sound) << sound.error().message;
}

TEST(TieredReference, ComputesTheSameBitsAfterARestore) {
  comes_back_and_computes_the_same_bits("reference", kNarrowBands, 140);
}

class TieredSessionFile : public testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<Model> open_tiered(std::string_view policy = GetParam()) {
    return kipp::open_tiered("cpu", policy);
  }
};

INSTANTIATE_TEST_SUITE_P(Policies, TieredSessionFile,
                         testing::Values("tiered", kNarrowBands, kWideRecent),
                         [](const auto& tested) { return std::to_string(tested.index); });

TEST_P(TieredSessionFile, ComesBackInAnotherModelAndComputesTheSameBits) {
  for (const std::size_t n : {12u, 64u, 140u}) {
    comes_back_and_computes_the_same_bits("cpu", GetParam(), n);
  }
}

TEST_P(TieredSessionFile, HoldsNothingOfOtherSequences) {
  const auto save = [](const std::shared_ptr<Model>& model, const std::string& name) {
    Session session = create(model, kTieredCapacity);
    EXPECT_TRUE(session.sync(test::random_tokens(75, 1)));
    EXPECT_TRUE(session.save(scratch(name)));
    return test::read_file(scratch(name));
  };
  const auto used = open_tiered();
  for (const unsigned seed : {7u, 8u, 9u}) {
    Session session = create(used, kTieredCapacity);
    ASSERT_TRUE(session.sync(test::random_tokens(kTieredCapacity, seed)));
  }
  EXPECT_TRUE(save(used, "tiered-used") == save(open_tiered(), "tiered-clean"));
}

TEST_P(TieredSessionFile, RefusesThoseOfOtherPoliciesAndBlocksThatLackPlanes) {
  Session session = create(open_tiered(), kTieredCapacity);
  ASSERT_TRUE(session.sync(test::random_tokens(140, 1)));
  ASSERT_TRUE(session.save(scratch("tiered")));
  const auto refusal = [](const std::shared_ptr<Model>& model, const std::string& path) {
    Session other = create(model, kTieredCapacity);
    EXPECT_TRUE(other.sync(test::random_tokens(40, 2)));
    const auto before = logits(other);
    const auto restored = other.restore(path);
    EXPECT_FALSE(restored);
    EXPECT_EQ(logits(other), before);
    return restored ? std::string() : restored.error().message;
  };
  EXPECT_THAT(
      refusal(open_tiered("int8"), scratch("tiered")),
      HasSubstr(fmt::format("KV policy: expected a session of int8, found one of {}", GetParam())));

  // As if it had been saved when the end was farther away.
  const SessionFile file = SessionFile::open(scratch("tiered")).value();
  std::vector<BlockPart> parts;
  for (int i = 0; i < file.blocks(); ++i) parts.push_back(file.part(i));
  parts[3] = parts[1];  // far from the end; block 3 is the last complete one
  const auto model = open_tiered();
  ASSERT_TRUE(
      write_session_file(scratch("lacking"), model->origin(),
                         {.tokens = file.tokens(), .logits = file.logits(), .blocks = parts},
                         [&](int i, std::span<std::byte> out) -> Result<void> {
                           std::ranges::copy(file.block(i == 3 ? 1 : i), out.begin());
                           return {};
                         }));
  if (parts[3].planes == file.part(3).planes) return;  // the policy reads both alike
  EXPECT_THAT(refusal(model, scratch("lacking")),
              HasSubstr("block 3: expected planes that its KV policy has, found"));
}

// What is checked before a backend comes into it.
class SessionFileDamage : public SessionFileTest {};
INSTANTIATE_TEST_SUITE_P(OneBackend, SessionFileDamage, testing::Values("cpu"));

TEST_P(SessionFileDamage, IsRefused) {
  const auto good = test::read_file(save());
  Session session = create(model_);
  ASSERT_TRUE(session.sync(test::random_tokens(45, 4)));
  const auto before = logits(session);
  const auto refuses = [&](const std::vector<std::byte>& bytes) {
    const auto restored = session.restore(save_bytes(bytes));
    return !restored && restored.error().code == ErrorCode::refused &&
           !restored.error().message.empty();
  };

  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < good.size(); at += good.size() / 60) places.push_back(at);
  for (std::size_t back = 1; back <= 8; ++back) places.push_back(good.size() - back);
  auto bytes = good;
  for (const std::size_t at : places) {
    bytes[at] ^= std::byte{0x10};
    EXPECT_TRUE(refuses(bytes)) << "byte " << at;
    bytes[at] = good[at];
  }

  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{8}, kHeader - 1, kHeader,
        kHeader + 7, good.size() / 2, good.size() - 9, good.size() - 8, good.size() - 1}) {
    EXPECT_TRUE(refuses({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}))
        << "cut to " << size;
  }
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_TRUE(refuses(longer));

  EXPECT_EQ(session.restore(scratch("absent")).error().code, ErrorCode::io);

  EXPECT_THAT(session.tokens(), ElementsAreArray(test::random_tokens(45, 4)));
  EXPECT_EQ(logits(session), before) << "refusals leave the session as it was";
  EXPECT_TRUE(session.restore(save_bytes(good))) << "the unharmed file still is one";
}

TEST_P(SessionFileTest, RefusesWhatDoesNotFitTheSession) {
  const std::string path = save();
  Session small = create(model_, 69);
  ASSERT_TRUE(small.sync(test::random_tokens(3, 4)));
  const auto refused = small.restore(path);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("70 tokens do not fit into its capacity of 69"));
  EXPECT_EQ(small.tokens().size(), 3u);
  EXPECT_FALSE(small.logits().empty());
  Session enough = create(model_, 70);
  EXPECT_TRUE(enough.restore(path));
}

TEST_P(SessionFileTest, RefusesSessionsOfOtherModels) {
  const std::string path = save();
  const auto refusal = [&](std::shared_ptr<Model> other) {
    Session session = create(std::move(other));
    const auto restored = session.restore(path);
    EXPECT_FALSE(restored);
    return restored ? std::string() : restored.error().message;
  };
  EXPECT_THAT(refusal(open_model(GetParam(), Scheme::q8_0)),
              HasSubstr("scheme: expected a session of q8_0, found one of bf16"));
  EXPECT_THAT(refusal(open_model(GetParam() == "cpu" ? "reference" : "cpu")),
              AllOf(HasSubstr("backend: expected a session of"), HasSubstr(GetParam())));
  EXPECT_THAT(refusal(test::open_twin_model("tiny-untied", Scheme::bf16, kBlocks, GetParam())),
              HasSubstr("checkpoint: expected a session of"));

  const std::string seeded = scratch("seed-8.gguf");
  ASSERT_TRUE(synthesize(seeded, **find_synthetic("tiny-tied"), 8, Scheme::bf16, {}));
  const auto other_weights = Model::open(
      seeded, {.backend = std::string(GetParam()), .allow_synthetic = true, .kv_blocks = kBlocks});
  ASSERT_TRUE(other_weights) << other_weights.error().message;
  EXPECT_THAT(refusal(*other_weights), HasSubstr("source: expected a session of"));

  const auto f32 =
      Model::open(test::tiny_artifact_path("tiny-tied", Scheme::bf16), {.backend = "reference",
                                                                        .allow_synthetic = true,
                                                                        .kv_blocks = kBlocks,
                                                                        .kv_store = KvStore::f32});
  ASSERT_TRUE(f32) << f32.error().message;
  EXPECT_THAT(refusal(*f32), HasSubstr("KV policy: expected a session of f32, found one of bf16"));
}

// Of a file that is not a model's, so that every byte and every length of it can be tried.
class SessionFormat : public testing::Test {
 protected:
  static constexpr std::size_t kBlockBytes = 256;

  static SessionOrigin origin() {
    return {.checkpoint = "some",
            .source = "0123456789abcdef",
            .scheme = "bf16",
            .kv = "bf16",
            .backend = "cpu",
            .block_bytes = kBlockBytes,
            .block_stretches = 4};
  }
  // 40 tokens; the second block uses 8 of its 32 positions. Of a prefix: without the first block.
  static std::vector<std::byte> written(int first_block = 0) {
    const auto tokens = test::random_tokens(40, 1);
    const std::vector<BlockPart> parts(2 - static_cast<std::size_t>(first_block),
                                       {.bytes = kBlockBytes, .planes = kWholeBlock});
    const auto done = write_session_file(scratch("format"), origin(),
                                         {.tokens = tokens,
                                          .logits = {},
                                          .blocks = parts,
                                          .first_block = first_block,
                                          .salt = 5,
                                          .before = 6},
                                         [](int i, std::span<std::byte> out) -> Result<void> {
                                           std::ranges::fill(out, std::byte(i + 1));
                                           return {};
                                         });
    EXPECT_TRUE(done) << done.error().message;
    return test::read_file(scratch("format"));
  }
  static std::string refusal(std::span<const std::byte> bytes) {
    const auto file = SessionFile::parse("x", bytes);
    return file ? std::string() : file.error().message;
  }
};

TEST_F(SessionFormat, GivesBackWhatWasWritten) {
  const auto bytes = written();
  const auto file = SessionFile::parse("x", bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tokens(), test::random_tokens(40, 1));
  EXPECT_TRUE(file->logits().empty());
  EXPECT_EQ(file->header().salt, 5u);
  EXPECT_EQ(file->header().before, 6u);
  EXPECT_EQ(file->origin().checkpoint, "some");
  EXPECT_TRUE(check_origin("x", file->header(), origin()));
  ASSERT_EQ(file->blocks(), 2);
  EXPECT_EQ(file->block(0).size(), kBlockBytes);
  EXPECT_EQ(file->block(0).back(), std::byte{1});
  // Four stretches of 64 bytes, 8 of 32 positions used.
  for (std::size_t at = 0; at < kBlockBytes; ++at) {
    ASSERT_EQ(file->block(1)[at], at % 64 < 16 ? std::byte{2} : std::byte{0}) << at;
  }
}

TEST_F(SessionFormat, RefusesEveryChangedBitAndEveryOtherLength) {
  for (const int first_block : {0, 1}) {
    auto bytes = written(first_block);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes[at] ^= std::byte(1 << bit);
        ASSERT_GT(refusal(bytes).size(), 20u) << "bit " << bit << " of byte " << at;
        bytes[at] ^= std::byte(1 << bit);
      }
    }
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      ASSERT_GT(refusal(std::span(bytes).first(size)).size(), 20u) << size;
    }
    ASSERT_EQ(refusal(bytes), "");
    bytes.push_back(std::byte{0});
    EXPECT_GT(refusal(bytes).size(), 20u);
  }
}

// Every part of another file of the same shape is a part of that file alone.
TEST_F(SessionFormat, RefusesPartsThatChangedPlaces) {
  auto bytes = written();
  constexpr std::size_t kPart = kBlockBytes + 8;  // with its checksum
  const auto last = bytes.end() - kPart;
  std::swap_ranges(last, bytes.end(), last - kPart);
  EXPECT_THAT(refusal(bytes), HasSubstr("block 0: expected the checksum"));
}

TEST_F(SessionFormat, NoSessionIsRestoredFromAPartOfAPrefix) {
  const auto bytes = written(1);
  const auto file = SessionFile::parse("x", bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->blocks(), 1);
  const auto of = [](std::size_t size) {
    return [size](int, PlaneBits) -> std::optional<std::size_t> { return size; };
  };
  EXPECT_TRUE(file->check_blocks("x", of(kBlockBytes)));
  EXPECT_THAT(file->check_session("x", of(kBlockBytes)).error().message,
              HasSubstr("expected all blocks of a session, found a stored prefix from block 1 on"));
  EXPECT_THAT(file->check_blocks("x", of(8)).error().message,
              HasSubstr("block 0: expected 8 bytes, found 256"));
  EXPECT_THAT(file->check_blocks("x", [](int, PlaneBits) { return std::optional<std::size_t>(); })
                  .error()
                  .message,
              HasSubstr("block 0: expected planes that its KV policy has, found 0x1"));
}

// A policy in words may be long; what does not fit is refused rather than cut, since two that
// differ behind the cut would be taken for one.
TEST_F(SessionFormat, RefusesTextsThatDoNotFit) {
  SessionOrigin other = origin();
  other.kv = std::string(255, 'k');
  const auto write = [&] {
    return write_session_file(scratch("long"), other, {.tokens = {}, .logits = {}, .blocks = {}},
                              {});
  };
  ASSERT_TRUE(write());
  EXPECT_EQ(SessionFile::open(scratch("long"), other).value().origin().kv, other.kv);
  other.kv.push_back('k');
  EXPECT_THAT(write().error().message, HasSubstr("KV policy: expected at most 255 bytes of text"));
}

// A tiered block that is not complete: rows of its BF16 planes up to its last position, and zeros.
TEST_F(SessionFormat, OfAnOpenTieredBlockNothingButRowsIsKept) {
  SessionOrigin tiered = origin();
  // One layer: hi2, mid2, low4 and BF16 of keys, then of values.
  tiered.plane_units = {1, 1, 2, 8, 1, 1, 2, 8};
  constexpr PlaneBits kPlanes = 0b1000'1001;  // hi2 and BF16 of keys, BF16 of values
  constexpr std::size_t kParameters = 100;
  constexpr std::size_t kBytes = 17 * kKvUnitBytes + kParameters;
  const BlockPart part{.bytes = kBytes, .planes = kPlanes};
  const auto done = write_session_file(
      scratch("tiered"), tiered,
      {.tokens = test::random_tokens(5, 1), .logits = {}, .blocks = std::span(&part, 1)},
      [](int, std::span<std::byte> out) -> Result<void> {
        std::ranges::fill(out, std::byte{7});
        return {};
      });
  ASSERT_TRUE(done) << done.error().message;
  const auto file = SessionFile::open(scratch("tiered"), tiered).value();
  EXPECT_EQ(file.part(0).planes, kPlanes);
  const auto block = file.block(0);
  ASSERT_EQ(block.size(), kBytes);
  constexpr std::size_t kRow = kKvUnitBytes / kBlockPositions;
  for (std::size_t at = 0; at < kBytes; ++at) {
    const bool rows = at >= kKvUnitBytes && at < 17 * kKvUnitBytes;
    const bool kept = rows && at % kKvUnitBytes < 5 * kRow;
    ASSERT_EQ(block[at], kept ? std::byte{7} : std::byte{0}) << at;
  }
}

// A limit on the size of files fails a write half-way, as a full disk does.
TEST_P(SessionFileTest, AFullDiskLeavesTheEarlierFile) {
  const std::string path = save(20, "kept");
  const auto earlier = test::read_file(path);
  Session session = create(model_);
  ASSERT_TRUE(session.sync(test::random_tokens(70, 1)));

  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = 700'000, .rlim_max = limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto saved = session.save(path);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);

  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ErrorCode::io);
  EXPECT_TRUE(test::read_file(path) == earlier);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_TRUE(session.save(path));
  EXPECT_GT(test::read_file(path).size(), earlier.size());
}

}  // namespace
}  // namespace kipp
