#include "kvquant/cpu_simd.h"

#include <cstring>

#include "kvquant/cpu_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvquant/cpu_simd.cc"
#include "hwy/foreach_target.h"
// Both must come after foreach_target.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "kvquant/cpu_simd_decode-inl.h"
#include "kvquant/cpu_simd_encode-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace kvquant {
namespace HWY_NAMESPACE {
namespace {

const char* this_target() { return hwy::TargetName(HWY_TARGET); }

#if HWY_TARGET == HWY_SCALAR

// One lane at a time is what the oracle does.
Status append(const BlockLayout& layout, std::span<const float> k, std::span<const float> v,
              KvBlock& block) {
  return CpuRefBackend().quantize_append(layout, k, v, block);
}

Status dequantize(const BlockLayout& layout, const KvBlock& block, Tier tier, int first, int count,
                  std::span<float> k, std::span<float> v, bool) {
  return CpuRefBackend().dequantize_for_attention(layout, block, tier, first, count, k, v);
}

#else

Status check_side(const BlockLayout& layout, Side side, std::span<const float> rows,
                  int first_position) {
  const float largest = largest_value(layout.scheme().side(side), layout.shape().head_width);
  if (all_within(rows, largest)) return {};
  return check_values(layout, side, rows, first_position);
}

Status append(const BlockLayout& layout, std::span<const float> k, std::span<const float> v,
              KvBlock& block) {
  int rows = 0;
  if (Status status = check_append(layout, k, v, block, &rows); !status.ok()) return status;
  if (Status status = check_side(layout, Side::key, k, block.positions); !status.ok())
    return status;
  if (Status status = check_side(layout, Side::value, v, block.positions); !status.ok())
    return status;
  const SideRows keys(layout, Side::key, block);
  const SideRows values(layout, Side::value, block);
  const auto first = static_cast<size_t>(block.positions);
  store_rows(keys, k, first);
  store_rows(values, v, first);
  block.positions += rows;
  if (rows > 0 && block.complete()) {
    encode_block(keys);
    encode_block(values);
  }
  return {};
}

Status dequantize(const BlockLayout& layout, const KvBlock& block, Tier tier, int first, int count,
                  std::span<float> k, std::span<float> v, bool stream) {
  if (Status status = check_read(layout, block, tier, first, count, k, v); !status.ok())
    return status;
  constexpr std::uintptr_t kVector = kLanes * sizeof(float);
  bool streamed = false;
  for (const Side side : {Side::key, Side::value}) {
    float* out = side == Side::key ? k.data() : v.data();
    const SideRows rows(layout, side, block);
    const Read read = {rows, tier.side(side), static_cast<size_t>(first),
                       static_cast<size_t>(count), out};
    // Rows are whole vectors, so an aligned first one means that all of them are.
    if (stream && reinterpret_cast<std::uintptr_t>(out) % kVector == 0) {
      read_side<true>(read);
      streamed = true;
    } else {
      read_side<false>(read);
    }
  }
  if (streamed) hwy::FlushStream();
  return {};
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvquant {

HWY_EXPORT(this_target);
HWY_EXPORT(append);
HWY_EXPORT(dequantize);

namespace {

constexpr int kMostTargets = 16;

struct TargetList {
  const char* names[kMostTargets] = {};
  std::int64_t masks[kMostTargets] = {};
  std::size_t count = 0;
};

// Made once, before any target is forced: forcing changes what Highway says is there.
const TargetList& target_list() {
  static const TargetList list = [] {
    TargetList made;
    // The best has the lowest bit.
    for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS;
         left != 0 && made.count < kMostTargets; left &= left - 1) {
      const std::int64_t mask = left & -left;
      made.names[made.count] = hwy::TargetName(mask);
      made.masks[made.count] = mask;
      ++made.count;
    }
    return made;
  }();
  return list;
}

}  // namespace

Status CpuSimdBackend::quantize_append(const BlockLayout& layout, std::span<const float> k,
                                       std::span<const float> v, KvBlock& block) {
  return HWY_DYNAMIC_DISPATCH(append)(layout, k, v, block);
}

Status CpuSimdBackend::dequantize_for_attention(const BlockLayout& layout, const KvBlock& block,
                                                Tier tier, int first, int count, std::span<float> k,
                                                std::span<float> v) {
  return HWY_DYNAMIC_DISPATCH(dequantize)(layout, block, tier, first, count, k, v,
                                          stores_ == Stores::streaming);
}

std::span<const char* const> CpuSimdBackend::targets() {
  const TargetList& list = target_list();
  return {list.names, list.count};
}

const char* CpuSimdBackend::target() { return HWY_DYNAMIC_DISPATCH(this_target)(); }

Status CpuSimdBackend::force_target(const char* name) {
  const TargetList& list = target_list();
  char there[128] = "";
  std::size_t used = 0;
  for (std::size_t i = 0; i < list.count; ++i) {
    if (std::strcmp(list.names[i], name) == 0) {
      hwy::SetSupportedTargetsForTest(list.masks[i]);
      return {};
    }
    const int wrote =
        std::snprintf(there + used, sizeof there - used, "%s%s", i == 0 ? "" : ", ", list.names[i]);
    used += static_cast<std::size_t>(wrote);
    if (used >= sizeof there) break;
  }
  return Status::fail(Code::invalid_argument, "target: expected one of %s, found %s", there, name);
}

void CpuSimdBackend::use_best_target() { hwy::SetSupportedTargetsForTest(0); }

}  // namespace kvquant
#endif  // HWY_ONCE
