// What the cache refuses, sentence by sentence, and that it is unchanged and of use afterwards.
#include "kvquant/tiered_cache.h"

#include <gmock/gmock.h>

#include <climits>
#include <cmath>
#include <string>
#include <utility>

#include "kvquant/codec.h"
#include "support/cache_probe.h"

namespace kvquant {
namespace {

using namespace test;

// Bands of one block each, so that a few blocks reach all of them.
CacheConfig small_config() {
  CacheConfig config;
  config.shape = {2, 16};
  config.scheme.key.group_size = 16;
  config.scheme.value.group_size = 32;
  config.policy.sink_blocks = 1;
  config.policy.recent_blocks = 1;
  config.policy.mid_blocks = 1;
  config.policy.recent = {BitWidth::int8, BitWidth::int8};
  config.policy.mid = {BitWidth::int8, BitWidth::int4};
  config.policy.far = {BitWidth::int4, BitWidth::int2};
  config.max_positions = 320;
  return config;
}

RefCache make_cache(const CacheConfig& config) {
  Expected<RefCache> cache = RefCache::create({}, config);
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return std::move(cache.value());
}

Status append_rows(RefCache& cache, int count) {
  const Rows rows = rows_of(cache.config().shape, 0, cache.length(), count);
  return cache.append(rows.k, rows.v);
}

RefCache filled_cache(const CacheConfig& config, int length) {
  RefCache cache = make_cache(config);
  const Status status = append_rows(cache, length);
  EXPECT_TRUE(status.ok()) << status.message();
  return cache;
}

std::string sentence(const Status& status, Code code) {
  EXPECT_EQ(status.code(), code) << status.message();
  return status.message();
}

// The sentence of a call that must fail and leave the cache as it was.
template <class Call>
std::string refusal(RefCache& cache, Code code, const Call& call) {
  const Held before = held_by(cache);
  const MemoryReport memory = cache.memory();
  const std::string said = sentence(call(), code);
  EXPECT_EQ(held_by(cache), before);
  EXPECT_TRUE(same_memory(cache.memory(), memory));
  return said;
}

std::string create_refusal(const CacheConfig& config) {
  const Expected<RefCache> cache = RefCache::create({}, config);
  EXPECT_FALSE(cache.ok());
  const Expected<std::size_t> bytes = RefCache::bytes_needed(config);
  EXPECT_STREQ(bytes.status().message(), cache.status().message());
  return sentence(cache.status(), Code::invalid_argument);
}

// --- create

TEST(TieredCacheCreate, SchemesAndShapes) {
  CacheConfig config = small_config();
  config.scheme.key.group_size = 12;
  EXPECT_EQ(create_refusal(config),
            "key group_size: expected a divisor of the 32 elements of a row, found 12");
  config = small_config();
  config.scheme.value.grouping = Grouping::per_channel;
  config.scheme.value.group_size = 12;
  EXPECT_EQ(create_refusal(config),
            "value group_size: expected a divisor of the 32 positions of a block, found 12");
  config = small_config();
  config.shape.head_width = 20;
  EXPECT_EQ(create_refusal(config),
            "head_width: expected a multiple of 16 from 16 to 512, found 20");
}

TEST(TieredCacheCreate, PoliciesAndSizes) {
  CacheConfig config = small_config();
  config.policy.far.value = BitWidth::bf16;
  EXPECT_EQ(create_refusal(config),
            "far value: expected at most int4, the width of the mid band, found bf16: a plane that "
            "was freed would be needed again");
  config = small_config();
  config.max_positions = 0;
  EXPECT_EQ(create_refusal(config), "max_positions: expected at least 1, found 0");
  config.max_positions = INT_MIN;
  EXPECT_EQ(create_refusal(config), "max_positions: expected at least 1, found -2147483648");
  config = small_config();
  config.undemoted_positions = -1;
  EXPECT_EQ(create_refusal(config), "undemoted_positions: expected at least 0, found -1");
}

// --- append

TEST(TieredCacheAppend, WrongSizes) {
  RefCache cache = filled_cache(small_config(), 40);
  const std::vector<float> rows(96);
  const std::span<const float> all(rows);
  EXPECT_EQ(refusal(cache, Code::invalid_argument,
                    [&] { return cache.append(all.first(64), all.first(32)); }),
            "append: expected k and v of equal size in whole rows of 32 elements, found 64 and 32");
  EXPECT_EQ(refusal(cache, Code::invalid_argument,
                    [&] { return cache.append(all.first(33), all.first(33)); }),
            "append: expected k and v of equal size in whole rows of 32 elements, found 33 and 33");
  EXPECT_TRUE(cache.append({}, {}).ok());
  EXPECT_EQ(cache.length(), 40);
}

TEST(TieredCacheAppend, MorePositionsThanThereIsRoomFor) {
  CacheConfig config = small_config();
  config.max_positions = 70;
  RefCache cache = filled_cache(config, 40);
  EXPECT_EQ(refusal(cache, Code::invalid_argument, [&] { return append_rows(cache, 31); }),
            "append: expected at most 30 more positions of max_positions 70, found 31");
  EXPECT_TRUE(append_rows(cache, 30).ok());
  EXPECT_EQ(refusal(cache, Code::invalid_argument, [&] { return append_rows(cache, 1); }),
            "append: expected at most 0 more positions of max_positions 70, found 1");
}

TEST(TieredCacheAppend, AValueThatCannotBeStoredInTheMiddleOfSeveralBlocks) {
  struct Bad {
    Side side;
    int position, head, channel;
    float value;
    const char* says;
  };
  constexpr Bad kBad[] = {
      {Side::key, 90, 1, 5, NAN,
       "key at position 90, head 1, channel 5: expected a finite number of magnitude at most "
       "65280, found nan"},
      {Side::key, 40, 0, 0, INFINITY,
       "key at position 40, head 0, channel 0: expected a finite number of magnitude at most "
       "65280, found inf"},
      {Side::value, 139, 1, 15, -INFINITY,
       "value at position 139, head 1, channel 15: expected a finite number of magnitude at most "
       "65280, found -inf"},
      {Side::value, 64, 0, 7, 65281.0f,
       "value at position 64, head 0, channel 7: expected a finite number of magnitude at most "
       "65280, found 65281"},
  };
  for (const Bad& bad : kBad) {
    SCOPED_TRACE(bad.says);
    RefCache cache = filled_cache(small_config(), 40);
    Rows rows = rows_of({2, 16}, 0, 40, 100);
    std::vector<float>& side = bad.side == Side::key ? rows.k : rows.v;
    float& at =
        side[static_cast<std::size_t>((bad.position - 40) * 32 + bad.head * 16 + bad.channel)];
    const float good = std::exchange(at, bad.value);
    EXPECT_EQ(refusal(cache, Code::not_finite, [&] { return cache.append(rows.k, rows.v); }),
              bad.says);
    // Put right, the same call goes through, and what came before has left no trace.
    at = good;
    ASSERT_TRUE(cache.append(rows.k, rows.v).ok());
    RefCache never = filled_cache(small_config(), 140);
    EXPECT_EQ(held_by(cache), held_by(never));
    EXPECT_TRUE(same_reads(cache, never));
  }
}

TEST(TieredCacheAppend, ARotationLowersTheLargestValue) {
  CacheConfig config = small_config();
  config.scheme.key.hadamard = true;
  RefCache cache = make_cache(config);
  Rows rows = rows_of(config.shape, 0, 0, 32);
  rows.k[17] = -16320.0f;
  EXPECT_TRUE(cache.append(rows.k, rows.v).ok());
  rows.k[17] = -16321.0f;
  EXPECT_EQ(refusal(cache, Code::not_finite, [&] { return cache.append(rows.k, rows.v); }),
            "key at position 32, head 1, channel 1: expected a finite number of magnitude at most "
            "16320, found -16321");
}

TEST(TieredCacheAppend, BeyondThePromiseOfDemotion) {
  CacheConfig config = small_config();
  config.undemoted_positions = 64;
  config.policy.sink = {BitWidth::int8, BitWidth::int8};
  RefCache cache = filled_cache(config, 64);
  // Rows of three blocks were set aside: two for the promise and the open one.
  EXPECT_EQ(
      refusal(cache, Code::out_of_memory, [&] { return append_rows(cache, 33); }),
      "append: no key plane bf16 is left for block 3: undemoted_positions sets memory aside for "
      "64 positions between two calls of demote(length())");
  ASSERT_TRUE(append_rows(cache, 32).ok());
  EXPECT_EQ(
      refusal(cache, Code::out_of_memory, [&] { return append_rows(cache, 1); }),
      "append: no key plane bf16 is left for block 3: undemoted_positions sets memory aside for "
      "64 positions between two calls of demote(length())");
  ASSERT_TRUE(cache.demote(cache.length()).ok());
  ASSERT_TRUE(append_rows(cache, 64).ok());
  config.undemoted_positions = 0;
  RefCache never = filled_cache(config, 160);
  EXPECT_TRUE(same_reads(cache, never, 160));
}

// Fails once at a given call, having written the rows it was given.
class FailingBackend final : public KvBackend {
 public:
  explicit FailingBackend(int fails_at) : fails_at_(fails_at) {}
  const char* name() const override { return "failing"; }
  Status quantize_append(const BlockLayout& layout, std::span<const float> k,
                         std::span<const float> v, KvBlock& block) override {
    const bool fails = calls_++ == fails_at_;
    const int positions = block.positions;
    Status status = ref_.quantize_append(layout, k, v, block);
    if (!fails) return status;
    block.positions = positions;
    return Status::fail(Code::out_of_memory, "the device is gone");
  }
  Status dequantize_for_attention(const BlockLayout& layout, const KvBlock& block, Tier tier,
                                  int first, int count, std::span<float> k,
                                  std::span<float> v) override {
    return ref_.dequantize_for_attention(layout, block, tier, first, count, k, v);
  }

 private:
  CpuRefBackend ref_;
  int fails_at_;
  int calls_ = 0;
};

TEST(TieredCacheAppend, ABackendThatFailsAnywhereLeavesNothingBehind) {
  for (int fails_at = 1; fails_at <= 4; ++fails_at) {
    SCOPED_TRACE(fails_at);
    Expected<TieredKvCache<FailingBackend>> made =
        TieredKvCache<FailingBackend>::create(FailingBackend(fails_at), small_config());
    ASSERT_TRUE(made.ok());
    TieredKvCache<FailingBackend>& cache = made.value();
    const Rows first = rows_of({2, 16}, 0, 0, 20);
    const Rows more = rows_of({2, 16}, 0, 20, 100);  // four blocks, so four calls
    ASSERT_TRUE(cache.append(first.k, first.v).ok());
    const Held before = held_by(cache);
    EXPECT_EQ(sentence(cache.append(more.k, more.v), Code::out_of_memory), "the device is gone");
    EXPECT_EQ(held_by(cache), before);
    ASSERT_TRUE(cache.append(more.k, more.v).ok());
    RefCache never = filled_cache(small_config(), 120);
    EXPECT_EQ(held_by(cache), held_by(never));
  }
}

// --- reads

TEST(TieredCacheRead, RangesAndSizes) {
  RefCache cache = filled_cache(small_config(), 100);
  std::vector<float> k(96, 7.0f), v(96, 7.0f);
  const AttentionInput three{k, v};
  const auto said = [&](int query, int first, int count, const AttentionInput& out) {
    return refusal(cache, Code::invalid_argument,
                   [&] { return cache.dequantize(query, first, count, out); });
  };
  EXPECT_EQ(said(200, 98, 3, three),
            "dequantize: expected positions within [0, 100), found 3 positions from 98");
  EXPECT_EQ(said(200, -1, 3, three),
            "dequantize: expected positions within [0, 100), found 3 positions from -1");
  EXPECT_EQ(said(200, 3, -1, three),
            "dequantize: expected positions within [0, 100), found -1 positions from 3");
  EXPECT_EQ(said(200, INT_MAX, INT_MAX, three),
            "dequantize: expected positions within [0, 100), found 2147483647 positions from "
            "2147483647");
  EXPECT_EQ(said(200, 0, 4, three),
            "dequantize: expected room for 128 elements each, found 96 and 96");
  EXPECT_EQ(said(200, 0, 3, {three.k, three.v.first(64)}),
            "dequantize: expected room for 96 elements each, found 96 and 64");
  EXPECT_EQ(said(49, 48, 3, three),
            "dequantize: a query at position 49 cannot read position 50, which comes after it");
  EXPECT_EQ(said(-1, 0, 3, three),
            "dequantize: a query at position -1 cannot read position 2, which comes after it");
  EXPECT_THAT(k, testing::Each(7.0f));
  EXPECT_THAT(v, testing::Each(7.0f));
}

TEST(TieredCacheRead, TheOpenBlockFromALaterBlock) {
  RefCache cache = filled_cache(small_config(), 100);
  std::vector<float> out;
  EXPECT_EQ(refusal(cache, Code::unavailable, [&] { return read(cache, 128, 90, 8, out); }),
            "dequantize: block 3 is still open, and a query at position 128 would read it in the "
            "recent band, which exists once the block is complete");
  EXPECT_THAT(out, testing::Each(0.0f)) << "block 2 could have been read";
  EXPECT_TRUE(read(cache, 127, 90, 10, out).ok());
}

TEST(TieredCacheRead, WhatWasFreedByDemotion) {
  RefCache cache = filled_cache(small_config(), 160);
  ASSERT_TRUE(cache.demote(160).ok());
  std::vector<float> out;
  EXPECT_EQ(refusal(cache, Code::unavailable, [&] { return read(cache, 128, 64, 32, out); }),
            "dequantize: a query at position 128 reads the keys of block 2 as int8, and that was "
            "freed by demote()");
  EXPECT_EQ(refusal(cache, Code::unavailable, [&] { return read(cache, 63, 0, 64, out); }),
            "dequantize: a query at position 63 reads the keys of block 1 as bf16, and that was "
            "freed by demote()");
  EXPECT_THAT(out, testing::Each(0.0f)) << "block 0, a sink, could have been read";
  EXPECT_TRUE(read(cache, 160, 0, 160, out).ok());
}

TEST(TieredCacheRead, AnEmptyCache) {
  RefCache cache = make_cache(small_config());
  EXPECT_EQ(cache.length(), 0);
  EXPECT_TRUE(cache.dequantize({}).ok());
  EXPECT_TRUE(cache.truncate(0).ok());
  EXPECT_TRUE(cache.demote(0).ok());
  EXPECT_TRUE(cache.demote(INT_MAX).ok());
  EXPECT_EQ(cache.memory().held, 0u);
  EXPECT_EQ(cache.memory().bits_per_element, 0.0);
  std::vector<float> row(32);
  EXPECT_EQ(refusal(cache, Code::invalid_argument,
                    [&] {
                      return cache.dequantize(0, 0, 1, {row, row});
                    }),
            "dequantize: expected positions within [0, 0), found 1 positions from 0");
}

TEST(TieredCacheRead, TheWholeSequenceIsReadAsTheNextQueryReadsIt) {
  for (const int length : {1, 32, 33, 160, 170}) {
    SCOPED_TRACE(length);
    RefCache cache = filled_cache(small_config(), length);
    const auto elements = static_cast<std::size_t>(length * 32);
    std::vector<float> whole(2 * elements), asked;
    const std::span<float> all(whole);
    ASSERT_TRUE(cache.dequantize({all.first(elements), all.subspan(elements)}).ok());
    ASSERT_TRUE(read(cache, length, 0, length, asked).ok());
    EXPECT_TRUE(same_floats(whole, asked));
    EXPECT_EQ(bits_of(whole[0]), bits_of(bf16_to_float(float_to_bf16(element(0, Side::key, 0, 0)))))
        << "open or a BF16 sink";
  }
}

TEST(TieredCacheRead, PositionsFarBeyondTheEndAreFarAway) {
  RefCache cache = filled_cache(small_config(), 64);
  std::vector<float> far, next;
  ASSERT_TRUE(read(cache, INT_MAX, 32, 32, far).ok());
  ASSERT_TRUE(read(cache, 4 * 32, 32, 32, next).ok());
  EXPECT_TRUE(same_floats(far, next));
}

// --- truncate and demote

TEST(TieredCacheTruncate, OutOfRange) {
  RefCache cache = filled_cache(small_config(), 100);
  EXPECT_EQ(refusal(cache, Code::invalid_argument, [&] { return cache.truncate(101); }),
            "truncate: expected 0 to the length 100, found 101");
  EXPECT_EQ(refusal(cache, Code::invalid_argument, [&] { return cache.truncate(-1); }),
            "truncate: expected 0 to the length 100, found -1");
  EXPECT_TRUE(cache.truncate(100).ok());
}

TEST(TieredCacheTruncate, IntoADemotedBlock) {
  RefCache cache = filled_cache(small_config(), 100);
  ASSERT_TRUE(cache.demote(100).ok());
  EXPECT_EQ(refusal(cache, Code::unavailable, [&] { return cache.truncate(70); }),
            "truncate to 70: block 2 was demoted and has no bf16 rows to go back to; 64 and 96 are "
            "possible");
  EXPECT_TRUE(cache.truncate(97).ok()) << "the open block";
  EXPECT_TRUE(cache.truncate(96).ok());
  EXPECT_TRUE(cache.truncate(64).ok());
  EXPECT_TRUE(cache.truncate(10).ok()) << "a sink kept as BF16";
  EXPECT_EQ(cache.length(), 10);
}

TEST(TieredCacheDemote, ANegativePosition) {
  RefCache cache = filled_cache(small_config(), 100);
  EXPECT_EQ(refusal(cache, Code::invalid_argument, [&] { return cache.demote(-1); }),
            "demote: expected a position of at least 0, found -1");
}

TEST(TieredCacheDemote, AnEarlierPositionThanBeforeFreesNothingMore) {
  RefCache cache = filled_cache(small_config(), 200);
  ASSERT_TRUE(cache.demote(200).ok());
  const Held before = held_by(cache);
  ASSERT_TRUE(cache.demote(100).ok());
  ASSERT_TRUE(cache.demote(0).ok());
  EXPECT_EQ(held_by(cache), before);
}

TEST(TieredCacheDemote, BlocksThatReplaceSettledOnesAreDemotedAgain) {
  RefCache cache = filled_cache(small_config(), 320);
  ASSERT_TRUE(cache.demote(320).ok());
  ASSERT_TRUE(cache.truncate(64).ok());
  ASSERT_TRUE(append_rows(cache, 256).ok());
  ASSERT_TRUE(cache.demote(320).ok());
  RefCache never = filled_cache(small_config(), 320);
  ASSERT_TRUE(never.demote(320).ok());
  EXPECT_EQ(held_by(cache), held_by(never));
}

// --- moves

TEST(TieredCacheMove, AMovedCacheGoesOn) {
  RefCache cache = filled_cache(small_config(), 100);
  RefCache moved = std::move(cache);
  ASSERT_TRUE(append_rows(moved, 60).ok());
  RefCache assigned = filled_cache(small_config(), 5);
  assigned = std::move(moved);
  ASSERT_TRUE(assigned.demote(160).ok());
  ASSERT_TRUE(append_rows(assigned, 40).ok());
  RefCache never = filled_cache(small_config(), 200);
  EXPECT_TRUE(same_reads(assigned, never, 160));
  moved = filled_cache(small_config(), 7);  // one moved from can be used again
  EXPECT_EQ(moved.length(), 7);
  ASSERT_TRUE(append_rows(moved, 60).ok());
}

}  // namespace
}  // namespace kvquant
