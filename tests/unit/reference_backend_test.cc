#include "backend/reference/reference_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/registry.h"
#include "base/float16.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using testing::HasSubstr;

TEST(Registry, KnowsReference) {
  const auto backend = make_backend("reference");
  ASSERT_TRUE(backend);
  EXPECT_EQ((*backend)->info().name, "reference");
  EXPECT_EQ((*backend)->info().max_step_tokens, 512);
  EXPECT_EQ((*backend)->info().max_logit_rows, 512);
  EXPECT_THAT(backend_names(), testing::Contains("reference"));
}

TEST(Registry, RefusesOtherNamesAndFallsBackToNothing) {
  for (const char* name : {"", "cuda9", "Reference"}) {
    const auto backend = make_backend(name);
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error().code, ErrorCode::invalid);
    EXPECT_THAT(backend.error().message, HasSubstr("backend: expected one of cpu, reference"));
    EXPECT_THAT(backend.error().message, HasSubstr(fmt::format("found \"{}\"", name)));
  }
}

TEST(Registry, LetsWebgpuAloneHaveAnAdapter) {
  EXPECT_TRUE(check_adapter("webgpu", "llvmpipe"));
  for (const std::string_view name : backend_names()) {
    EXPECT_TRUE(check_adapter(name, ""));
    if (name == "webgpu") continue;
    const auto refused = check_adapter(name, "0");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
    EXPECT_EQ(refused.error().message,
              fmt::format("adapter: expected one with backend webgpu only, found \"0\" with "
                          "backend {}",
                          name));
  }
}

TEST(Registry, ListsDevicesOfEveryBackendThatHasItsOwn) {
  std::vector<std::string_view> names;
  for (const BackendDevices& each : list_devices()) {
    names.push_back(each.backend);
    if (each.devices) {
      EXPECT_THAT(*each.devices, testing::Not(testing::IsEmpty())) << each.backend;
    } else {
      EXPECT_THAT(each.devices.error().message, HasSubstr("found")) << each.backend;
    }
    EXPECT_TRUE(each.devices || each.backend != "cpu");
  }
  EXPECT_THAT(names, testing::ElementsAre("cpu", "cuda", "webgpu"));
}

TEST(WeightStore, IsNamed) {
  EXPECT_EQ(parse_weight_store("packed").value(), WeightStore::packed);
  EXPECT_EQ(parse_weight_store("mapped").value(), WeightStore::mapped);
  const auto refused = parse_weight_store("Mapped");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "weights: expected packed or mapped, found \"Mapped\"");
}

class ReferenceBackendTest : public testing::Test {
 protected:
  const Artifact artifact_ = test::open_twin("tiny-tied", Scheme::bf16);
  reference::ReferenceBackend backend_;
};

TEST_F(ReferenceBackendTest, IsLoadedOnceAndBeforeUse) {
  const std::vector<Token> tokens = {1};
  const std::vector<BlockId> blocks = {0};
  const std::vector<EvalItem> items = {{.tokens = tokens, .blocks = blocks}};
  EXPECT_FALSE(backend_.eval(items));
  std::vector<std::byte> bytes(8);
  EXPECT_FALSE(backend_.read_block(0, bytes));
  EXPECT_FALSE(backend_.load(artifact_, {.blocks = 0}));
  ASSERT_TRUE(backend_.load(artifact_, {.blocks = 1}));
  EXPECT_FALSE(backend_.load(artifact_, {.blocks = 1}));
  EXPECT_TRUE(backend_.eval(items));
}

TEST_F(ReferenceBackendTest, RefusesACacheThatNoMachineHas) {
  const auto refused = backend_.load(artifact_, {.blocks = 2000000000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("ask for a shorter context"));
}

TEST_F(ReferenceBackendTest, ChecksBlockNumbersAndSizes) {
  ASSERT_TRUE(backend_.load(artifact_, {.blocks = 2}));
  // 3 layers, K and V, 8 heads, 32 positions, 128 dimensions, 2 bytes.
  ASSERT_EQ(backend_.block_bytes(), 3u * 2 * 8 * 32 * 128 * 2);
  std::vector<std::byte> bytes(backend_.block_bytes());
  EXPECT_TRUE(backend_.read_block(1, bytes));
  EXPECT_THAT(backend_.read_block(2, bytes).error().message,
              HasSubstr("expected one from 0 to 1, found 2"));
  EXPECT_FALSE(backend_.write_block(-1, bytes));
  bytes.pop_back();
  EXPECT_THAT(backend_.write_block(0, bytes).error().message,
              HasSubstr("expected 393216 bytes, found 393215"));
  EXPECT_FALSE(backend_.read_block(0, bytes));
}

// docs/BACKENDS.md: [layer][k, v][kv_head][position][head_dim] in BF16. The keys and values that
// forward() shows must be found where the document says.
TEST_F(ReferenceBackendTest, BlockBytesAreLaidOutAsDocumented) {
  ASSERT_TRUE(backend_.load(artifact_, {.blocks = 4}));
  const auto tokens = test::random_tokens(40, 1);
  const std::vector<BlockId> blocks = {3, 1};
  std::vector<std::vector<float>> qkv;  // by layer: [tokens, 8 * 128 queries, keys, values]
  backend_.set_tap([&](std::string_view name, int, const reference::Rows& rows) {
    if (name == "qkv_rope") qkv.emplace_back(rows.data, rows.data + rows.rows * rows.cols);
  });
  ASSERT_TRUE(backend_.eval(std::vector<EvalItem>{{.tokens = tokens, .blocks = blocks}}));
  ASSERT_EQ(qkv.size(), 3u);

  std::vector<std::byte> bytes(backend_.block_bytes());
  for (std::size_t logical = 0; logical < 2; ++logical) {
    ASSERT_TRUE(backend_.read_block(blocks[logical], bytes));
    std::size_t at = 0;
    for (std::size_t layer = 0; layer < 3; ++layer) {
      for (std::size_t k_or_v = 0; k_or_v < 2; ++k_or_v) {
        for (std::size_t head = 0; head < kKvHeads; ++head) {
          for (std::size_t slot = 0; slot < kBlockPositions; ++slot) {
            for (std::size_t i = 0; i < kHeadDim; ++i, at += 2) {
              const std::size_t pos = logical * kBlockPositions + slot;
              std::uint16_t stored;
              std::memcpy(&stored, bytes.data() + at, 2);
              const std::uint16_t expected =
                  pos < tokens.size()
                      ? f32_to_bf16(qkv[layer][pos * 3072 + 1024 * (1 + k_or_v) + head * 128 + i])
                      : std::uint16_t{0};
              ASSERT_EQ(stored, expected) << layer << ' ' << k_or_v << ' ' << head << ' ' << pos;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kipp
