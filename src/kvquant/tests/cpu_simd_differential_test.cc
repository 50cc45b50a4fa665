// The SIMD backend through the differential harness, to the bit, on every instruction set of this
// CPU: what any other backend has to pass.
#include <gmock/gmock.h>

#include "kvquant/cpu_simd.h"
#include "kvquant/differential.h"

namespace kvquant {
namespace {

TEST(CpuSimdDifferential, AgreesWithTheOracleOnEveryTarget) {
  using enum BitWidth;
  using enum Grouping;
  const DifferentialConfig kConfigs[] = {
      {.shape = {2, 64},
       .scheme = {{int8, per_token, 64, false, true, int2}, {int8, per_token, 64, false, true}}},
      {.shape = {1, 128},
       .scheme = {{int8, per_channel, 32, true, false, int2}, {int4, per_token, 32, true, true}}},
      {.shape = {3, 48},
       .scheme = {{int4, per_channel, 8, false, false, int4, 90}, {int2, per_token, 144, false}}},
      {.shape = {2, 16}, .scheme = {{bf16}, {int8, per_token, 4, true, true, int8}}},
  };
  for (const char* target : CpuSimdBackend::targets()) {
    ASSERT_TRUE(CpuSimdBackend::force_target(target).ok());
    for (const auto stores : {CpuSimdBackend::Stores::cached, CpuSimdBackend::Stores::streaming}) {
      for (const DifferentialConfig& config : kConfigs) {
        CpuSimdBackend backend(stores);
        DifferentialReport report;
        const Status status = run_differential(backend, config, report);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(report.agrees) << target << ": " << report.what;
        EXPECT_EQ(report.difference, 0) << target << ": " << report.what;
        EXPECT_GT(report.elements, 0u);
      }
    }
  }
  CpuSimdBackend::use_best_target();
}

}  // namespace
}  // namespace kvquant
