#include "model/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/checkpoints.h"

namespace kipp {
namespace {

ModelConfig config_of(std::string_view id) {
  const auto found = find_checkpoint(id);
  EXPECT_TRUE(found);
  return (*found)->config;
}

TEST(Memory, OfOnePosition) {
  // 28 layers, K and V, 8 heads of 128, two bytes: 114,688 bytes a position.
  EXPECT_EQ(kv_block_bytes(config_of("qwen3-0.6b"), 2), 114688u * 32);
  EXPECT_EQ(kv_block_bytes(config_of("qwen3-32b"), 4), 524288u * 32);
}

TEST(Memory, CountsTheCacheAndTheLargestStep) {
  const ModelConfig config = config_of("qwen3-0.6b");
  const MemoryNeed need = memory_needed(config, 10, 2, 512, 512);
  EXPECT_EQ(need.kv_bytes, 10 * kv_block_bytes(config, 2));
  // Logits of 512 rows are most of it: 311 MB.
  EXPECT_GT(need.scratch_bytes, 512u * 151936 * 4);
  EXPECT_LT(need.scratch_bytes, 512u * 200000 * 4);
  EXPECT_EQ(need.total(), need.kv_bytes + need.scratch_bytes);
  EXPECT_LT(memory_needed(config, 10, 2, 512, 16).scratch_bytes, 64u << 20);
}

TEST(Memory, RefusesWhatDoesNotFit) {
  const std::size_t gib = std::size_t{1} << 30;
  const MemoryNeed need = {.kv_bytes = 6 * gib, .scratch_bytes = gib};
  EXPECT_TRUE(check_memory(need, 1280, 7 * gib));
  EXPECT_TRUE(check_memory(need, 1280, 0)) << "unknown is not too little";
  const auto refused = check_memory(need, 1280, 7 * gib - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_THAT(refused.error().message,
              testing::HasSubstr("7.0 GiB needed (6.0 for 40960 cached positions"));
  const MemoryNeed packed = {.kv_bytes = gib, .scratch_bytes = gib, .weight_bytes = 3 * gib};
  EXPECT_EQ(packed.total(), 5 * gib);
  EXPECT_THAT(
      check_memory(packed, 32, 4 * gib).error().message,
      testing::EndsWith("1.0 for one step, 3.0 for weights), 4.0 GiB available; ask for a shorter "
                        "context or for mapped weights"));
}

TEST(Memory, TheSystemSaysWhatIsAvailable) {
  EXPECT_GT(available_memory(), std::size_t{1} << 24);
  EXPECT_LT(available_memory(), std::size_t{1} << 50);
}

}  // namespace
}  // namespace kipp
