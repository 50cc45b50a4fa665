// Which instruction sets there are, and which is in use. What they do is in cpu_simd_encode.cc and
// cpu_simd_decode.cc.
#include "kvquant/cpu_simd.h"

#include <cstdio>
#include <cstring>

#include "kvquant/cpu_simd_targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvquant/cpu_simd.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvquant {
namespace HWY_NAMESPACE {
namespace {

const char* this_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvquant {

HWY_EXPORT(this_target);

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
