// A device through webgpu.h: work runs in the order it was recorded, and whatever goes wrong is one
// sentence that names the adapter, after which the process goes on.
#include "gpu/device.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace gpu {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// b[i] = factor * b[i] + a[i].
constexpr char kMultiplyAdd[] = R"(
@group(0) @binding(0) var<uniform> factor: vec4<u32>;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read_write> b: array<u32>;
override kMore: u32 = 0u;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&b)) {
    b[id.x] = factor.x * b[id.x] + a[id.x] + kMore;
  }
}
)";

KernelSource multiply_add() {
  return {.name = "multiply_add",
          .wgsl = kMultiplyAdd,
          .bindings = {Access::uniform, Access::read, Access::read_write}};
}

std::span<const std::byte> bytes(const std::vector<std::uint32_t>& values) {
  return std::as_bytes(std::span(values));
}

class GpuDevice : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = Device::open({});
    ASSERT_TRUE(opened) << opened.error().message;
    device_ = *std::move(opened);
  }

  Buffer buffer(const std::vector<std::uint32_t>& values) {
    auto made = device_->create_buffer(values.size() * 4, "values");
    EXPECT_TRUE(made) << made.error().message;
    device_->write(*made, 0, bytes(values));
    return *made;
  }

  Arguments arguments(const Kernel& kernel, std::uint32_t factor, const Buffer& a,
                      const Buffer& b) {
    auto uniform = device_->create_uniform(16, "factor");
    EXPECT_TRUE(uniform) << uniform.error().message;
    device_->write(*uniform, 0, bytes({factor, 0, 0, 0}));
    auto made = device_->bind(kernel, std::vector<Binding>{{&*uniform}, {&a}, {&b}});
    EXPECT_TRUE(made) << made.error().message;
    return *made;
  }

  std::vector<std::uint32_t> values(const Buffer& buffer) {
    std::vector<std::uint32_t> out(buffer.bytes() / 4);
    const auto read = device_->read(buffer, 0, std::as_writable_bytes(std::span(out)));
    EXPECT_TRUE(read) << read.error().message;
    return out;
  }

  // Every sentence is one line that ends with who said it.
  void expect_error(const Error& error, ErrorKind kind, const std::string& part) {
    EXPECT_EQ(error.kind, kind) << error.message;
    EXPECT_THAT(error.message, AllOf(HasSubstr(part), testing::Not(HasSubstr("\n"))));
    EXPECT_THAT(error.message,
                HasSubstr("(" + device_->adapter().name + ", " + device_->adapter().api + ")"));
  }

  std::unique_ptr<Device> device_;
};

TEST_F(GpuDevice, RunsWhatWasRecordedInOrder) {
  const Kernel kernel = device_->create_kernel(multiply_add()).value();
  const Buffer a = buffer({1, 2, 3});
  const Buffer b = buffer({5, 6, 7});
  const Buffer c = device_->create_buffer(12, "more values").value();
  EXPECT_THAT(values(c), Each(0)) << "memory is zero when it is made";
  const Arguments into_b = arguments(kernel, 10, a, b);
  const Arguments into_c = arguments(kernel, 2, b, c);

  Recorder recorder = device_->record();
  recorder.dispatch(kernel, into_b, 1);  // 51 62 73
  recorder.copy(c, 4, b, 0, 8);          // 0 51 62
  recorder.dispatch(kernel, into_c, 1);  // 51 164 197
  recorder.dispatch(kernel, into_b, 0);  // nothing
  recorder.clear(b, 8, 4);
  std::vector<std::uint32_t> out(2);
  const auto read =
      device_->submit_and_read(std::move(recorder), c, 4, std::as_writable_bytes(std::span(out)));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_THAT(out, ElementsAre(164, 197));
  EXPECT_THAT(values(b), ElementsAre(51, 62, 0));

  // What is written is there for the next submission, and not for the one before.
  Recorder again = device_->record();
  again.dispatch(kernel, into_b, 1);
  ASSERT_TRUE(device_->submit(std::move(again)));
  device_->write(a, 0, bytes({7, 7, 7}));
  EXPECT_THAT(values(b), ElementsAre(511, 622, 3));
  EXPECT_THAT(values(a), Each(7));
}

TEST_F(GpuDevice, SetsConstantsOfAShaderAndBindsPartsOfABuffer) {
  KernelSource source = multiply_add();
  source.constants = {{"kMore", 100}};
  const Kernel kernel = device_->create_kernel(source).value();
  std::vector<std::uint32_t> many(256);
  std::iota(many.begin(), many.end(), 0u);
  const Buffer a = buffer(many);
  const Buffer b = device_->create_buffer(256, "values").value();
  const Buffer factor = device_->create_uniform(16, "factor").value();
  const auto made = device_->bind(kernel, std::vector<Binding>{{&factor}, {&a, 256, 256}, {&b}});
  ASSERT_TRUE(made) << made.error().message;
  Recorder recorder = device_->record();
  recorder.dispatch(kernel, *made, 1);
  ASSERT_TRUE(device_->submit(std::move(recorder)));
  const std::vector<std::uint32_t> found = values(b);
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(found[i], 64 + i + 100) << i;
}

TEST_F(GpuDevice, RefusesMoreMemoryThanAShaderSeesWithBothNumbers) {
  const Limits& limits = device_->adapter().limits;
  const std::uint64_t most = std::min(limits.max_buffer_bytes, limits.max_binding_bytes);
  const auto refused = device_->create_buffer(most + 4, "keys and values");
  ASSERT_FALSE(refused);
  expect_error(refused.error(), ErrorKind::unsupported,
               "expected at most " + std::to_string(most) + " bytes");
  EXPECT_THAT(refused.error().message,
              HasSubstr("found " + std::to_string(most + 4) + " for keys and values"));
  EXPECT_THAT(values(buffer({3})), ElementsAre(3));
}

TEST_F(GpuDevice, NamesAShaderThatDoesNotCompile) {
  KernelSource source = multiply_add();
  source.wgsl += "fn wrong() { let x: u32 = 1.5; }";
  const auto unreadable = device_->create_kernel(source);
  ASSERT_FALSE(unreadable);
  expect_error(unreadable.error(), ErrorKind::shader, "shader multiply_add: ");

  source = multiply_add();
  source.entry = "other";
  const auto elsewhere = device_->create_kernel(source);
  ASSERT_FALSE(elsewhere);
  expect_error(elsewhere.error(), ErrorKind::shader, "shader multiply_add: ");

  source = multiply_add();
  source.bindings = {Access::uniform, Access::read};
  const auto unbound = device_->create_kernel(source);
  ASSERT_FALSE(unbound);
  expect_error(unbound.error(), ErrorKind::shader, "shader multiply_add: ");
  EXPECT_TRUE(device_->create_kernel(multiply_add())) << "the next one is none the worse";
}

TEST_F(GpuDevice, ReportsCallsThatBreakTheRulesOnce) {
  const Kernel kernel = device_->create_kernel(multiply_add()).value();
  const Buffer a = buffer({1, 2});
  const auto few = device_->bind(kernel, std::vector<Binding>{{&a}});
  ASSERT_FALSE(few);
  expect_error(few.error(), ErrorKind::invalid, "arguments of shader multiply_add: ");

  Recorder beyond = device_->record();
  beyond.copy(a, 0, buffer({1}), 0, 8);
  const auto refused = device_->submit(std::move(beyond));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid) << refused.error().message;
  EXPECT_TRUE(device_->wait()) << "said once";
  EXPECT_THAT(values(a), ElementsAre(1, 2));
}

TEST_F(GpuDevice, StaysLostOnceItIs) {
  const Kernel kernel = device_->create_kernel(multiply_add()).value();
  const Buffer a = buffer({1, 2});
  const Arguments both = arguments(kernel, 1, buffer({4, 4}), a);
  device_->destroy();
  Recorder recorder = device_->record();
  recorder.dispatch(kernel, both, 1);
  const auto submitted = device_->submit(std::move(recorder));
  ASSERT_FALSE(submitted);
  expect_error(submitted.error(), ErrorKind::lost, "device: lost");
  std::vector<std::uint32_t> out(2);
  const auto read = device_->read(a, 0, std::as_writable_bytes(std::span(out)));
  ASSERT_FALSE(read);
  expect_error(read.error(), ErrorKind::lost, "device: lost");
  const auto made = device_->create_buffer(4, "values");
  ASSERT_FALSE(made);
  expect_error(made.error(), ErrorKind::lost, "device: lost");
  EXPECT_FALSE(device_->wait());

  auto another = Device::open({});
  ASSERT_TRUE(another) << another.error().message;
  device_ = *std::move(another);
  EXPECT_THAT(values(buffer({9})), ElementsAre(9)) << "the process goes on";
}

TEST(GpuDevices, AreOpenedByNameWithoutFeaturesThatWereSwitchedOff) {
  const auto adapters = list_adapters();
  ASSERT_TRUE(adapters) << adapters.error().message;
  ASSERT_FALSE(adapters->empty());
  const auto plain = Device::open({.adapter = "0", .subgroups = false, .f16 = false});
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ((*plain)->adapter().name, adapters->front().name);
  EXPECT_FALSE((*plain)->adapter().features.f16);
  EXPECT_FALSE((*plain)->adapter().features.subgroups);
  const auto none = Device::open({.adapter = "no such GPU"});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::no_adapter);
  EXPECT_THAT(none.error().message,
              AllOf(HasSubstr(adapters->front().name), HasSubstr("found \"no such GPU\"")));
}

}  // namespace
}  // namespace gpu
