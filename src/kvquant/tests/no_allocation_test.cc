// After create() a cache never goes to the system for memory: not when it works, not when it
// refuses. Every form of operator new is counted.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

#include "kvquant/cpu_ref.h"
#include "support/tiered_cases.h"
#ifdef KVQUANT_HIGHWAY
#include "kvquant/cpu_simd.h"
#endif

namespace {

std::atomic<long> allocations = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  // aligned_alloc() wants a multiple of the alignment.
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* counted_or_end(std::size_t bytes, std::size_t alignment) {
  void* memory = counted(bytes, alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

constexpr std::size_t kPlain = alignof(std::max_align_t);

}  // namespace

// Not inlined: GCC warns where it sees free() meet memory that came from new.
#define KVQUANT_COUNTED [[gnu::noinline]]
KVQUANT_COUNTED void* operator new(std::size_t n) { return counted_or_end(n, kPlain); }
KVQUANT_COUNTED void* operator new[](std::size_t n) { return counted_or_end(n, kPlain); }
KVQUANT_COUNTED void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return counted(n, kPlain);
}
KVQUANT_COUNTED void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return counted(n, kPlain);
}
KVQUANT_COUNTED void* operator new(std::size_t n, std::align_val_t a) {
  return counted_or_end(n, static_cast<std::size_t>(a));
}
KVQUANT_COUNTED void* operator new[](std::size_t n, std::align_val_t a) {
  return counted_or_end(n, static_cast<std::size_t>(a));
}
KVQUANT_COUNTED void* operator new(std::size_t n, std::align_val_t a,
                                   const std::nothrow_t&) noexcept {
  return counted(n, static_cast<std::size_t>(a));
}
KVQUANT_COUNTED void* operator new[](std::size_t n, std::align_val_t a,
                                     const std::nothrow_t&) noexcept {
  return counted(n, static_cast<std::size_t>(a));
}
KVQUANT_COUNTED void operator delete(void* p) noexcept { std::free(p); }
KVQUANT_COUNTED void operator delete[](void* p) noexcept { std::free(p); }
KVQUANT_COUNTED void operator delete(void* p, std::size_t) noexcept { std::free(p); }
KVQUANT_COUNTED void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
KVQUANT_COUNTED void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
KVQUANT_COUNTED void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
KVQUANT_COUNTED void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
KVQUANT_COUNTED void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
KVQUANT_COUNTED void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
KVQUANT_COUNTED void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace kvquant {
namespace {

using namespace test;

// Schemes that take every path of an encoder and a decoder.
std::vector<KvScheme> schemes() {
  QuantScheme int8;
  int8.group_size = 64;
  QuantScheme rotated = int8;
  rotated.hadamard = true;
  QuantScheme channels = int8;
  channels.bits = BitWidth::int4;
  channels.grouping = Grouping::per_channel;
  channels.group_size = 32;
  QuantScheme symmetric = int8;
  symmetric.symmetric = true;
  symmetric.group_size = 128;
  QuantScheme narrow = int8;
  narrow.bits = BitWidth::int2;
  narrow.clip_percent = 90;
  return {{int8, rotated}, {channels, symmetric}, {symmetric, channels}, {rotated, narrow}};
}

template <class Backend>
void every_call_and_every_refusal() {
  for (const KvScheme& scheme : schemes()) {
    CacheConfig config;
    config.shape = {2, 64};
    config.scheme = scheme;
    config.policy.recent_blocks = 1;
    config.policy.mid = {BitWidth::bf16, BitWidth::bf16};
    config.policy.far = {BitWidth::int2, BitWidth::int2};
    config.max_positions = 400;
    config.undemoted_positions = 100;
    const long before_create = allocations;
    Expected<TieredKvCache<Backend>> made = TieredKvCache<Backend>::create({}, config);
    ASSERT_TRUE(made.ok()) << made.status().message();
    ASSERT_GT(allocations, before_create) << "the counter counts";
    TieredKvCache<Backend>& cache = made.value();

    Rows rows = rows_of(config.shape, 0, 0, 100);
    std::vector<float> k(400 * 128), v(k);
    const std::span<float> all_k(k), all_v(v);
    const auto room = [&](int count) {
      const auto elements = static_cast<std::size_t>(count * 128);
      return AttentionInput{all_k.first(elements), all_v.first(elements)};
    };
    const std::span<const float> row(rows.k.data(), 128);
    int failures = 0;
    const auto good = [&](const Status& status) { failures += status.ok() ? 0 : 1; };
    const auto bad = [&](const Status& status) { failures += status.ok() ? 1 : 0; };
    std::size_t held = 0;

    const long before = allocations;
    for (int i = 0; i < 40; ++i) good(cache.append(row, row));
    for (int turn = 0; turn < 3; ++turn) {
      good(cache.append(rows.k, rows.v));
      good(cache.dequantize(room(cache.length())));
      good(cache.demote(cache.length()));
      good(cache.dequantize(cache.length(), 10, 90, room(90)));
      held += cache.memory().held;
    }
    good(cache.truncate(cache.length() - 3));
    bad(cache.append(rows.k, row));
    bad(cache.append(row.first(7), row.first(7)));
    rows.v[99 * 128 + 5] = NAN;
    bad(cache.append(rows.k, rows.v));
    rows.v[99 * 128 + 5] = 0.0f;
    bad(cache.append(rows.k, rows.v));  // more than max_positions
    bad(cache.truncate(40));
    bad(cache.truncate(-1));
    bad(cache.demote(-1));
    bad(cache.dequantize(cache.length(), 0, 401, room(400)));
    bad(cache.dequantize(3, 0, 5, room(5)));
    bad(cache.dequantize(cache.length(), 0, 5, room(4)));
    bad(cache.dequantize(40, 32, 1, room(1)));  // freed
    const long after = allocations;

    EXPECT_EQ(after, before) << cache.backend().name();
    EXPECT_EQ(failures, 0);
    EXPECT_GT(held, 0u);
  }
}

template <class Backend>
void running_out_of_what_was_promised() {
  CacheConfig config;
  config.shape = {2, 64};
  config.max_positions = 400;
  config.undemoted_positions = 1;
  config.policy.sink_blocks = config.policy.recent_blocks = 0;
  Expected<TieredKvCache<Backend>> made = TieredKvCache<Backend>::create({}, config);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Rows rows = rows_of(config.shape, 0, 0, 100);
  const long before = allocations;
  const Status status = made.value().append(rows.k, rows.v);
  const long after = allocations;
  EXPECT_EQ(status.code(), Code::out_of_memory);
  EXPECT_EQ(after, before);
}

TEST(NoAllocation, CpuRefBackend) {
  every_call_and_every_refusal<CpuRefBackend>();
  running_out_of_what_was_promised<CpuRefBackend>();
}

#ifdef KVQUANT_HIGHWAY
TEST(NoAllocation, CpuSimdBackend) {
  every_call_and_every_refusal<CpuSimdBackend>();
  running_out_of_what_was_promised<CpuSimdBackend>();
}
#endif

}  // namespace
}  // namespace kvquant
