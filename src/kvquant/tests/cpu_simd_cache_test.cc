// Two backends over the same blocks: whichever of them wrote a row or made the codes, the other
// goes on from there.
#include "kvquant/cpu_simd.h"

#include <gmock/gmock.h>

#include <utility>

#include "support/cache_probe.h"
#include "support/property.h"

namespace kvquant {
namespace {

using namespace test;

// The oracle and the SIMD backend by turns, as the bits of `turns` say, over and over.
class Alternating final : public KvBackend {
 public:
  explicit Alternating(std::uint64_t turns) : turns_(turns) {}
  const char* name() const override { return "alternating"; }
  Status quantize_append(const BlockLayout& layout, std::span<const float> k,
                         std::span<const float> v, KvBlock& block) override {
    return next().quantize_append(layout, k, v, block);
  }
  Status dequantize_for_attention(const BlockLayout& layout, const KvBlock& block, Tier tier,
                                  int first, int count, std::span<float> k,
                                  std::span<float> v) override {
    return next().dequantize_for_attention(layout, block, tier, first, count, k, v);
  }

 private:
  KvBackend& next() {
    const bool simd = (turns_ >> turn_ & 1u) != 0;
    turn_ = (turn_ + 1) % 64;
    return simd ? static_cast<KvBackend&>(simd_) : static_cast<KvBackend&>(ref_);
  }

  CpuRefBackend ref_;
  CpuSimdBackend simd_;
  std::uint64_t turns_;
  unsigned turn_ = 0;
};

TEST(TieredCacheProperty, TwoBackendsMayTakeTurnsAtTheSameBlocks) {
  property([] {
    const CacheConfig config = *any_config();
    const int length = *rc::gen::inRange(0, 4 * kBlockPositions + 1);
    const int piece = *rc::gen::inRange(1, 100);
    const auto seed = *rc::gen::inRange<std::uint64_t>(0, 10000);
    const auto turns = *rc::gen::arbitrary<std::uint64_t>();

    auto mixed_made = TieredKvCache<Alternating>::create(Alternating(mixed(turns)), config);
    auto ref_made = RefCache::create({}, config);
    RC_ASSERT(mixed_made.ok() && ref_made.ok());
    TieredKvCache<Alternating>& cache = mixed_made.value();
    RefCache& oracle = ref_made.value();
    for (int at = 0; at < length; at += piece) {
      const Rows rows = rows_of(config.shape, seed, at, std::min(piece, length - at));
      RC_ASSERT(cache.append(rows.k, rows.v).ok());
      RC_ASSERT(oracle.append(rows.k, rows.v).ok());
    }
    RC_ASSERT(held_by(cache) == held_by(oracle));
    RC_ASSERT(same_reads(cache, oracle));
    RC_ASSERT(cache.demote(length).ok());
    RC_ASSERT(same_reads(cache, oracle, length));
  });
}

}  // namespace
}  // namespace kvquant
