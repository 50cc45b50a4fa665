// Stored prefixes: what comes back from disk computes the bits that a cold prompt does, and nothing
// else in a directory can do more than spare no work.
#include "engine/session_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/stored_blocks.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

constexpr std::size_t kBlockBytes = 64;
constexpr std::size_t kTokens = kBlockPositions;

SessionOrigin some_origin(const std::string& backend = "cpu") {
  return {.checkpoint = "some",
          .source = "0123",
          .scheme = "bf16",
          .kv = "bf16",
          .backend = backend,
          .block_bytes = kBlockBytes,
          .block_stretches = 1};
}

bool any(int, int, PlaneBits) { return true; }

class SessionStoreTest : public testing::Test {
 protected:
  SessionStoreTest() : dir_((test::scratch_dir() / "store").string()) { fs::remove_all(dir_); }

  std::unique_ptr<SessionStore> open(std::uint64_t budget = 1 << 20,
                                     const SessionOrigin& origin = some_origin()) {
    auto store = SessionStore::open(
        origin, {.directory = dir_, .budget = budget, .log = [this](std::string_view line) {
                   lines_.emplace_back(line);
                 }});
    EXPECT_TRUE(store) << store.error().message;
    return *std::move(store);
  }
  // Block `blocks - 1` of `prompt`, all bytes of which say which it is.
  static void save(SessionStore& store, std::span<const Token> prompt, std::size_t blocks,
                   CacheSalt salt = 0, PlaneBits planes = kWholeBlock) {
    const auto tokens = prompt.first(blocks * kTokens);
    store.wait_for_room();
    store.save({tokens.begin(), tokens.end()}, salt, planes,
               std::vector<std::byte>(kBlockBytes, std::byte(blocks)));
  }
  static void save_all(SessionStore& store, std::span<const Token> prompt, CacheSalt salt = 0) {
    for (std::size_t n = 1; n <= prompt.size() / kTokens; ++n) save(store, prompt, n, salt);
    store.flush();
  }
  // The first byte of each block that comes back, and whether all that was promised did.
  static std::vector<int> read(SessionStore& store, std::span<const Token> prompt, int first = 0,
                               CacheSalt salt = 0) {
    std::vector<int> got;
    const auto prefix = store.find(prompt, salt, first, any);
    while (prefix && prefix->first() + static_cast<int>(got.size()) < prefix->end()) {
      switch (prefix->state()) {
        case StoredPrefix::State::loading:
          std::this_thread::yield();
          break;
        case StoredPrefix::State::failed:
          got.push_back(-1);
          return got;
        case StoredPrefix::State::ready:
          got.push_back(static_cast<int>(prefix->front().block(0)[0]));
          prefix->pop();
      }
    }
    return got;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(dir_)) {
      if (entry.path().extension() == ".kvblock") paths.push_back(entry.path());
    }
    return paths;
  }

  const std::string dir_;
  std::vector<std::string> lines_;
  const std::vector<Token> prompt_ = test::random_tokens(7 * kTokens, 1);
};

TEST_F(SessionStoreTest, WhatIsStoredIsFoundByAPromptThatContinuesIt) {
  const auto store = open();
  save_all(*store, prompt_);
  auto longer = prompt_;
  longer.push_back(5);
  EXPECT_EQ(read(*store, longer), (std::vector<int>{1, 2, 3, 4, 5, 6, 7}));
  // The last token of a prompt is evaluated.
  EXPECT_EQ(read(*store, prompt_), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read(*store, longer, 5), (std::vector<int>{6, 7}));
  EXPECT_EQ(read(*store, longer, 7), std::vector<int>());
  EXPECT_EQ(read(*store, {}), std::vector<int>());

  auto other = longer;
  other[3 * kTokens + 5] ^= 1;
  EXPECT_EQ(read(*store, other), (std::vector<int>{1, 2, 3}));
  other[0] ^= 1;
  EXPECT_EQ(read(*store, other), std::vector<int>());
  EXPECT_EQ(store->stats().saved, 7u);
}

TEST_F(SessionStoreTest, SaltsKeepUsersApart) {
  const auto store = open();
  save_all(*store, prompt_, 17);
  EXPECT_EQ(read(*store, prompt_), std::vector<int>());
  EXPECT_EQ(read(*store, prompt_, 0, 18), std::vector<int>());
  EXPECT_EQ(read(*store, prompt_, 0, 17), (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

TEST_F(SessionStoreTest, SurvivesARestartAndWantsNothingTwice) {
  save_all(*open(), prompt_);
  const auto store = open();
  EXPECT_EQ(store->stats().blocks, 7u);
  EXPECT_GT(store->stats().bytes, 7 * kBlockBytes);
  EXPECT_EQ(read(*store, prompt_), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  const std::uint64_t first =
      prefix_hash(0, std::span<const Token>(prompt_).first<kBlockPositions>());
  EXPECT_FALSE(store->wants(first, kWholeBlock));
  EXPECT_TRUE(store->wants(first, 3)) << "more planes than are stored";
  EXPECT_TRUE(store->wants(first + 1, kWholeBlock));
}

TEST_F(SessionStoreTest, AHitIsAsLongAsThePlanesAllow) {
  const auto store = open();
  for (std::size_t n = 1; n <= 7; ++n) save(*store, prompt_, n, 0, n <= 4 ? 1 : 3);
  store->flush();
  // The last two blocks before the query need plane 2.
  const auto needs = [](int end, int i, PlaneBits planes) {
    return i < end - 2 || (planes & 2) != 0;
  };
  const auto end = [&](std::size_t blocks) {
    const auto prompt = std::span<const Token>(prompt_).first(blocks * kTokens);
    const auto found = store->find(prompt, 0, 0, needs);
    return found ? found->end() : 0;
  };
  EXPECT_EQ(end(7), 6);
  EXPECT_EQ(end(6), 0) << "block 3 has plane 1 alone, and before it there is no better end";
}

TEST_F(SessionStoreTest, TheLeastRecentlyUsedGoFirstAndOfAPrefixTheLastOnes) {
  const auto other = test::random_tokens(3 * kTokens, 2);
  auto whole = prompt_;
  whole.push_back(1);
  std::uint64_t budget = 0;
  {
    const auto store = open();
    save_all(*store, prompt_);
    save_all(*store, other);
    budget = store->stats().bytes;
    read(*store, whole);  // used after the other one
  }
  for (const bool restarted : {false, true}) {
    const auto store = open(budget);
    const std::uint64_t evicted_before = store->stats().evicted;
    save_all(*store, test::random_tokens(kTokens, restarted ? 4 : 3));
    EXPECT_LE(store->stats().bytes, budget);
    EXPECT_GT(store->stats().evicted, evicted_before);
    EXPECT_EQ(files().size(), store->stats().blocks);
    auto longer = other;
    longer.push_back(1);
    // First the other prefix's last block; then, since its others were used, what took its place.
    EXPECT_EQ(read(*store, longer).size(), 2u);
    EXPECT_EQ(read(*store, whole).size(), 7u);
  }
  EXPECT_EQ(open(0)->stats().blocks, 0u);
  EXPECT_TRUE(files().empty());
}

TEST_F(SessionStoreTest, APrefixLosesItsEndFirst) {
  std::uint64_t budget = 0;
  {
    const auto store = open();
    save_all(*store, prompt_);
    budget = store->stats().bytes;
  }
  fs::remove_all(dir_);
  const auto store = open(budget);
  save_all(*store, prompt_);
  save_all(*store, test::random_tokens(kTokens, 2));
  auto longer = prompt_;
  longer.push_back(1);
  EXPECT_EQ(read(*store, longer), (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

TEST_F(SessionStoreTest, DamagedFilesSpareNoWorkAndDoNoHarm) {
  save_all(*open(), prompt_);
  for (const fs::path& path : files()) {
    auto bytes = test::read_file(path);
    bytes[bytes.size() - 20] ^= std::byte{1};  // in the block: the header is right
    test::write_file(path, bytes);
  }
  {
    const auto store = open();
    EXPECT_EQ(store->stats().blocks, 7u);
    EXPECT_EQ(read(*store, prompt_), std::vector<int>{-1});
    EXPECT_THAT(lines_, Contains(HasSubstr("the session is damaged")));
    EXPECT_EQ(store->stats().refused, 1u);
    EXPECT_EQ(read(*store, prompt_), std::vector<int>()) << "not tried again";
    save(*store, prompt_, 1);
    store->flush();
    EXPECT_EQ(read(*store, std::span(prompt_).first(kTokens + 1)), std::vector<int>{1})
        << "written anew";
  }
  for (const fs::path& path : files()) fs::resize_file(path, 300);
  const auto store = open();
  EXPECT_EQ(store->stats().refused, 7u);
  EXPECT_EQ(read(*store, prompt_), std::vector<int>());
  EXPECT_EQ(files().size(), 7u) << "within the budget nothing is deleted";
}

// A name says what a file is to be; its contents decide.
TEST_F(SessionStoreTest, AFileUnderAnotherNameIsNotBelieved) {
  save_all(*open(), prompt_);
  const auto other = test::random_tokens(kTokens + 1, 2);
  std::string name;
  {
    const auto store = open();
    save_all(*store, std::span(other).first(kTokens));
  }
  std::vector<fs::path> paths = files();
  const fs::path largest =
      *std::ranges::max_element(paths, {}, [](const fs::path& p) { return fs::file_size(p); });
  // The file of `other` is the one among those of one block that the prompt does not explain.
  for (const fs::path& path : paths) {
    const auto file = SessionFile::open(path.string());
    ASSERT_TRUE(file) << file.error().message;
    if (file->tokens() == std::vector<Token>(other.begin(), other.end() - 1)) name = path.string();
  }
  fs::copy_file(largest, name, fs::copy_options::overwrite_existing);
  const auto store = open();
  EXPECT_EQ(read(*store, other), std::vector<int>{-1});
  EXPECT_THAT(lines_, Contains(HasSubstr("expected block 0 of the prefix")));
}

TEST_F(SessionStoreTest, LeavesTheFilesOfOthersAlone) {
  save_all(*open(), prompt_);
  test::write_file(fs::path(dir_) / "notes.txt", {std::byte{1}});
  fs::copy_file(files()[0], files()[0].string() + ".partial");  // own, and interrupted
  {
    const auto store = open(0, some_origin("another"));
    EXPECT_EQ(store->stats().blocks, 0u);
    EXPECT_EQ(read(*store, prompt_), std::vector<int>());
  }
  EXPECT_EQ(files().size(), 7u);
  EXPECT_THAT(lines_, Contains(HasSubstr("files of other models or programs are left alone")));
  EXPECT_EQ(read(*open(), prompt_).size(), 6u);
  EXPECT_TRUE(fs::exists(fs::path(dir_) / "notes.txt"));
  EXPECT_FALSE(fs::exists(files()[0].string() + ".partial"));
  EXPECT_THAT(lines_, Contains(HasSubstr("its writing was interrupted")));
}

TEST_F(SessionStoreTest, OneServerToADirectory) {
  const auto store = open();
  const auto second = SessionStore::open(some_origin(), {.directory = dir_, .budget = 1});
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("that no other server uses, found it in use"));
}

TEST_F(SessionStoreTest, ADirectoryThatCannotBeWrittenToCostsNothingElse) {
  const auto store = open();
  fs::permissions(dir_, fs::perms::none);
  const bool root = ::access(dir_.c_str(), W_OK) == 0;  // whom no permission stops
  save(*store, prompt_, 1);
  store->flush();
  fs::permissions(dir_, fs::perms::owner_all);
  EXPECT_EQ(store->stats().failed, root ? 0u : 1u);
  EXPECT_EQ(store->stats().blocks, root ? 1u : 0u);
}

// An engine over a model, with and without what an earlier one left.
class StoredEngineTest : public SessionStoreTest, public testing::WithParamInterface<const char*> {
 protected:
  static constexpr int kBlocks = 40;

  struct Answer {
    std::uint64_t hash = 0;
    int cached = 0;
    std::string text;
    friend bool operator==(const Answer& a, const Answer& b) {
      return a.hash == b.hash && a.text == b.text;
    }
  };

  static std::future<Answer> ask(Engine& engine, std::vector<Token> prompt) {
    auto answer = std::make_shared<std::promise<Answer>>();
    auto text = std::make_shared<std::string>();
    Request request{.prompt = std::move(prompt), .sampling = {}, .max_tokens = 6, .stop = {}};
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    const auto id = engine.submit(std::move(request), [answer, text](RequestId, Event event) {
      if (auto* delta = std::get_if<TextDelta>(&event)) *text += delta->text;
      if (auto* failed = std::get_if<Failed>(&event)) ADD_FAILURE() << failed->error.message;
      if (auto* end = std::get_if<Finished>(&event)) {
        answer->set_value({end->logits_hash.value_or(0), end->usage.cached_tokens, *text});
      }
    });
    EXPECT_TRUE(id) << id.error().message;
    return answer->get_future();
  }
  static std::shared_ptr<Model> model() {
    auto opened = Model::open(test::tiny_artifact_path("tiny-tied", Scheme::bf16),
                              {.backend = "cpu",
                               .allow_synthetic = true,
                               .kv_blocks = kBlocks,
                               .kv_sequences = 4,
                               .kv = KvPolicy::parse(GetParam()).value()});
    EXPECT_TRUE(opened) << opened.error().message;
    return *std::move(opened);
  }
  // A server's life: starts, answers, stops.
  std::vector<Answer> serve(const std::vector<std::vector<Token>>& prompts, bool stored) {
    const auto served = model();
    std::unique_ptr<SessionStore> store;
    if (stored) store = open(std::uint64_t{1} << 30, served->origin());
    auto engine = Engine::start(served, {}, steady_clock(), store.get()).value();
    std::vector<std::future<Answer>> open;
    for (const auto& prompt : prompts) open.push_back(ask(*engine, prompt));
    std::vector<Answer> answers;
    for (auto& answer : open) answers.push_back(answer.get());
    engine->stop();
    if (store) stats_ = store->stats();
    const auto sound = served->pool().check();
    EXPECT_TRUE(sound) << sound.error().message;
    return answers;
  }

  SessionStoreStats stats_;
};

// The second has bands of one block, so that short prompts have them all.
INSTANTIATE_TEST_SUITE_P(Policies, StoredEngineTest,
                         testing::Values("bf16",
                                         "sink=1:int8,recent=1:int8,mid=1:int8/int4,far=int4/int2"),
                         [](const auto& tested) { return tested.index == 0 ? "bf16" : "tiered"; });

TEST_P(StoredEngineTest, AHitFromDiskIsBitEqualToAMiss) {
  auto longer = prompt_;
  longer.insert(longer.end(), {5, 6, 7});
  auto branched = prompt_;
  branched[4 * kTokens + 1] ^= 1;
  const std::vector<std::vector<Token>> prompts = {longer, branched, prompt_, longer};
  const auto cold = serve(prompts, false);

  serve({prompt_}, true);
  EXPECT_GE(stats_.saved, 7u);
  const auto warm = serve(prompts, true);
  EXPECT_EQ(warm, cold);
  EXPECT_EQ(warm[0].cached, 7 * kBlockPositions);
  EXPECT_EQ(warm[1].cached, 4 * kBlockPositions);
  EXPECT_EQ(warm[2].cached, 6 * kBlockPositions);
  EXPECT_GE(stats_.restored, 7u);
  EXPECT_EQ(stats_.refused, 0u);
}

TEST_P(StoredEngineTest, DamageMakesAColdPrompt) {
  const auto cold = serve({prompt_}, false);
  serve({prompt_}, true);
  for (const fs::path& path : files()) {
    const auto file = SessionFile::open(path.string());
    if (!file || file->header().first_block != 3) continue;
    auto bytes = test::read_file(path);
    bytes[bytes.size() / 2] ^= std::byte{1};
    test::write_file(path, bytes);
  }
  const auto warm = serve({prompt_}, true);
  EXPECT_EQ(warm, cold);
  EXPECT_EQ(warm[0].cached, 3 * kBlockPositions) << "what is before the damage serves";
  EXPECT_EQ(stats_.refused, 1u);
  // Written anew, since it was evaluated anew.
  const auto again = serve({prompt_}, true);
  EXPECT_EQ(again, cold);
  EXPECT_EQ(again[0].cached, 6 * kBlockPositions);
}

// As when memory was short before it was written: of block 4 what far bands read is there.
TEST_P(StoredEngineTest, ABlockThatLacksPlanesServesThoseWhoReadItFromFarAway) {
  const std::vector<Token> near(prompt_.begin(), prompt_.begin() + 5 * kTokens + 1);
  auto longer = prompt_;
  longer.push_back(5);
  const auto cold = serve({near, longer}, false);
  serve({prompt_}, true);
  const auto served = model();
  const SessionOrigin& origin = served->origin();
  const PlaneBits far = served->pool().plan().far;
  for (const fs::path& path : files()) {
    const auto file = SessionFile::open(path.string());
    ASSERT_TRUE(file) << file.error().message;
    if (file->header().first_block != 4) continue;
    // The planes in the order of their bits, then scales and offsets.
    std::vector<std::byte> kept;
    auto rest = file->block(0);
    for (std::size_t bit = 0; bit < origin.plane_units.size(); ++bit) {
      if ((file->part(0).planes >> bit & 1) == 0) continue;
      const auto plane =
          rest.first(static_cast<std::size_t>(origin.plane_units[bit]) * kKvUnitBytes);
      if ((far >> bit & 1) != 0) kept.insert(kept.end(), plane.begin(), plane.end());
      rest = rest.subspan(plane.size());
    }
    kept.insert(kept.end(), rest.begin(), rest.end());
    const BlockPart part{.bytes = kept.size(), .planes = far};
    ASSERT_TRUE(write_session_file(path.string(), origin,
                                   {.tokens = file->tokens(),
                                    .logits = {},
                                    .blocks = std::span(&part, 1),
                                    .first_block = 4,
                                    .before = file->header().before},
                                   [&](int, std::span<std::byte> out) -> Result<void> {
                                     std::ranges::copy(kept, out.begin());
                                     return {};
                                   }));
  }
  const bool whole = origin.plane_units.empty();
  const auto from_afar = serve({longer}, true);
  EXPECT_EQ(from_afar[0], cold[1]);
  EXPECT_EQ(from_afar[0].cached, 7 * kBlockPositions);
  const auto from_nearby = serve({near}, true);
  EXPECT_EQ(from_nearby[0], cold[0]);
  EXPECT_EQ(from_nearby[0].cached, (whole ? 5 : 4) * kBlockPositions);
  EXPECT_EQ(serve({near}, true)[0].cached, 5 * kBlockPositions) << "stored anew, with its planes";
}

TEST_P(StoredEngineTest, ARequestMayEndWhileItsPrefixIsRead) {
  serve({prompt_}, true);
  const auto served = model();
  const auto store = open(std::uint64_t{1} << 30, served->origin());
  {
    const auto engine = Engine::start(served, {}, steady_clock(), store.get()).value();
    for (int i = 0; i < 20; ++i) {
      std::promise<void> ended;
      Request request{.prompt = prompt_, .sampling = {}, .max_tokens = 50, .stop = {}};
      const auto id = engine->submit(std::move(request), [&ended](RequestId, Event event) {
        if (std::holds_alternative<Finished>(event)) ended.set_value();
      });
      ASSERT_TRUE(id);
      engine->cancel(*id);
      ended.get_future().wait();
    }
  }
  const auto sound = served->pool().check();
  EXPECT_TRUE(sound) << sound.error().message;
  EXPECT_EQ(served->pool_stats().private_blocks, 0);
}

}  // namespace
}  // namespace kipp
