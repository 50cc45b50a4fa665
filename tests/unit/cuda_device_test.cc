// What the device says when something is missing, full or broken: over the emulated runtime, whose
// calls can be made to fail.
#include "backend/cuda/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cuda/emulated/emulated_runtime.h"

namespace kipp::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CudaDeviceTest : public testing::Test {
 protected:
  CudaDeviceTest() { machine_ = {}; }
  ~CudaDeviceTest() override {
    EXPECT_EQ(machine_.live_objects, 0) << "something was not given back";
    machine_ = {};
  }

  runtime::EmulatedMachine& machine_ = runtime::emulated_machine();
};

TEST_F(CudaDeviceTest, NoGpuIsASentence) {
  machine_.open_status = runtime::kNoDevice;
  machine_.driver = 0;
  const auto device = Device::open();
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::io);
  EXPECT_EQ(device.error().message,
            "device: expected an NVIDIA GPU with its driver, found none (cudaErrorNoDevice: "
            "emulated); choose another backend");
}

TEST_F(CudaDeviceTest, AnOldDriverIsNamedWithBothVersions) {
  machine_.open_status = runtime::kInsufficientDriver;
  machine_.driver = 12040;
  const auto device = Device::open();
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().message,
            "device: expected a driver for CUDA 13.0 or later, found one for CUDA 12.4; update it "
            "or choose another backend");
}

TEST_F(CudaDeviceTest, AnOldGpuIsRefused) {
  machine_.properties.major = 7;
  machine_.properties.minor = 5;
  const auto device = Device::open();
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::refused);
  EXPECT_EQ(device.error().message,
            "device: expected compute capability 8.0 or later, found 7.5 (an emulated device)");
}

TEST_F(CudaDeviceTest, FreshMemoryHoldsNothingOfUse) {
  const auto device = Device::open().value();
  const auto memory = device->allocate(64, "weights").value();
  const auto pinned = device->allocate_pinned(64, "logits").value();
  for (const std::byte* bytes : {memory.data(), pinned.data()}) {
    float first;
    std::memcpy(&first, bytes, sizeof first);
    EXPECT_TRUE(std::isnan(first));
  }
}

TEST_F(CudaDeviceTest, AFullDeviceSaysHowMuchIsFree) {
  machine_.properties.memory_bytes = 1000;
  const auto device = Device::open().value();
  const auto first = device->allocate(600, "weights");
  ASSERT_TRUE(first);
  const auto second = device->allocate(600, "keys and values");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::exhausted);
  EXPECT_EQ(second.error().message,
            "memory: the device has no room for 600 bytes of keys and values; 400 are free");
  machine_.allocation = {.status = runtime::kOutOfMemory};
  const auto pinned = device->allocate_pinned(10, "logits");
  ASSERT_FALSE(pinned);
  EXPECT_EQ(pinned.error().message, "memory: no room for 10 page-locked bytes of logits");
  EXPECT_TRUE(device->allocate(400, "the rest")) << "a refusal takes nothing";
}

TEST_F(CudaDeviceTest, OneFailureDoesNotLoseTheDevice) {
  const auto device = Device::open().value();
  const auto failed = device->launched(runtime::kLaunchOutOfResources, "multiplying");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message,
            "device: failed while multiplying (cudaErrorLaunchOutOfResources: emulated)");
  EXPECT_TRUE(device->wait("computing a step"));
  EXPECT_TRUE(device->launched(0, "multiplying"));
}

TEST_F(CudaDeviceTest, ALaunchThatNobodyLookedAtIsFound) {
  const auto device = Device::open().value();
  machine_.launch = {.status = runtime::kNoKernelImage};
  const auto failed = device->launched(0, "normalizing");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::refused);
  EXPECT_THAT(failed.error().message,
              AllOf(HasSubstr("expected one this build has code for"), HasSubstr("9.0")));
}

TEST_F(CudaDeviceTest, ALostDeviceStaysLost) {
  const auto device = Device::open().value();
  machine_.wait = {.status = runtime::kIllegalAddress};
  const auto lost = device->wait("computing a step");
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().message,
            "device: lost while computing a step (cudaErrorIllegalAddress: emulated); this process "
            "can use it no more, so start kipp again");
  machine_.allocation = {.status = runtime::kIllegalAddress};
  const auto later = device->allocate(8, "weights");
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().message, lost.error().message) << "the first cause is what helps";
}

TEST_F(CudaDeviceTest, CopiesGoWhereTheyShould) {
  const auto device = Device::open().value();
  const auto there = device->allocate(8, "a").value();
  const auto beside = device->allocate(8, "b").value();
  const std::uint64_t sent = 0x0123456789abcdef;
  std::uint64_t back = 0;
  ASSERT_TRUE(device->copy_to_device(there.data(), std::as_bytes(std::span(&sent, 1)), "a copy"));
  ASSERT_TRUE(device->copy_within(beside.data(), there.data(), 8, "a copy"));
  ASSERT_TRUE(device->zero(there.data(), 8, "a fill"));
  ASSERT_TRUE(
      device->copy_to_host(std::as_writable_bytes(std::span(&back, 1)), beside.data(), "a copy"));
  EXPECT_EQ(back, sent);
  ASSERT_TRUE(
      device->copy_to_host(std::as_writable_bytes(std::span(&back, 1)), there.data(), "a copy"));
  EXPECT_EQ(back, 0u);
  machine_.copy = {.status = runtime::kLaunchOutOfResources};
  EXPECT_EQ(device->zero(there.data(), 8, "clearing").error().message,
            "device: failed while clearing (cudaErrorLaunchOutOfResources: emulated)");
}

}  // namespace
}  // namespace kipp::cuda
