// The WebGPU backend through the differential harness, to the bit: schemes that one workgroup
// encodes a row at a time, and all other groupings. A device that is gone is a sentence.
#include "kvquant/wgpu_backend.h"

#include <gmock/gmock.h>

#include <string>

#include "kvquant/differential.h"

namespace kvquant {
namespace {

using enum BitWidth;
using enum Grouping;

// Devices take long to open on a software adapter: one serves all tests but the one that loses it.
WgpuBackend& backend() {
  static const Expected<std::unique_ptr<WgpuBackend>> opened = WgpuBackend::open();
  if (!opened.ok()) {
    ADD_FAILURE() << opened.status().message();
    std::abort();
  }
  return *opened.value();
}

void expect_agreement(const DifferentialConfig& config) {
  DifferentialReport report;
  const Status status = run_differential(backend(), config, report);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(report.agrees) << report.what;
  EXPECT_EQ(report.difference, 0) << report.what;
  EXPECT_GT(report.elements, 0u);
}

TEST(WgpuDifferential, TheSchemeOfTieredCaches) {
  expect_agreement({.shape = {1, 128},
                    .scheme = {{int8, per_token, 128, false, true, int2},
                               {int8, per_token, 128, false, true, int2}},
                    .blocks_per_input = 2});
}

}  // namespace
}  // namespace kvquant
