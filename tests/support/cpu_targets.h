// Runs a check on every CPU target that the machine has and the kernels were compiled for.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>

namespace kipp::test {

// Targets with fused multiply-add: their kernels agree bit for bit.
inline constexpr std::int64_t kFusedTargets = HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON;

// check(fused) once per target, traced by its name.
template <class Check>
void on_every_target(const Check& check) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target == HWY_SSSE3) continue;  // not compiled
    SCOPED_TRACE(hwy::TargetName(target));
    // Few kernels are compiled for AVX3_DL; the others then run as they do on such a machine.
    hwy::SetSupportedTargetsForTest(target == HWY_AVX3_DL ? HWY_AVX3_DL | HWY_AVX3 : target);
    check((target & kFusedTargets) != 0);
    hwy::SetSupportedTargetsForTest(0);
  }
}

}  // namespace kipp::test
