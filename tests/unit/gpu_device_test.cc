// A device through webgpu.h: memory, copies, kernels and their arguments, the order in which work
// happens, and that whatever goes wrong is one sentence that names the adapter, after which the
// process goes on.
#include "gpu/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace gpu {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(Adapters, AreListedWithWhatEveryDeviceOfWebgpuHas) {
  const auto adapters = list_adapters();
  ASSERT_TRUE(adapters) << adapters.error().message;
  ASSERT_FALSE(adapters->empty());
  int index = 0;
  for (const AdapterInfo& adapter : *adapters) {
    EXPECT_EQ(adapter.index, index++);
    EXPECT_FALSE(adapter.name.empty());
    EXPECT_FALSE(adapter.api.empty());
    EXPECT_GE(adapter.limits.max_binding_bytes, 128u << 20);
    EXPECT_GE(adapter.limits.max_workgroup_threads, 256u);
    EXPECT_GE(adapter.limits.max_workgroup_bytes, 16384u);
    EXPECT_GE(adapter.limits.max_storage_buffers, 8u);
  }
}

// sums += numbers * scale * factor
constexpr const char* kScaled = R"(
override factor: u32 = 1;
@group(0) @binding(0) var<uniform> scale: vec4<u32>;
@group(0) @binding(1) var<storage, read> numbers: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&sums)) { sums[id.x] += numbers[id.x] * scale.x * factor; }
}
)";

class DeviceTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kNumbers = 1000;
  static constexpr std::uint32_t kGroups = (kNumbers + 63) / 64;
  static constexpr std::uint64_t kBytes = kNumbers * sizeof(std::uint32_t);

  static Device& device() {
    static Device& opened = *open().release();
    return opened;
  }
  static std::unique_ptr<Device> open(const DeviceOptions& options = {}) {
    auto device = Device::open(options);
    EXPECT_TRUE(device) << device.error().message;
    return *std::move(device);
  }

  // Every sentence is one line that ends with who said it.
  static void expect_error(const Error& error, ErrorKind kind, const std::string& part) {
    const AdapterInfo& adapter = device().adapter();
    EXPECT_EQ(error.kind, kind) << error.message;
    EXPECT_THAT(error.message,
                AllOf(HasSubstr(part), EndsWith("(" + adapter.name + ", " + adapter.api + ")"),
                      Not(HasSubstr("\n"))));
  }

  static KernelSource source(std::string wgsl = kScaled, double factor = 1) {
    return {.name = "scaled",
            .wgsl = std::move(wgsl),
            .bindings = {Access::uniform, Access::read, Access::read_write},
            .constants = {{"factor", factor}}};
  }
  static Error shader_error(const KernelSource& wrong) {
    const auto kernel = device().create_kernel(wrong);
    EXPECT_FALSE(kernel);
    return kernel ? Error{} : kernel.error();
  }

  // What a kernel needs, with numbers 0, 1, ... and a scale.
  struct Work {
    Buffer scale, numbers, sums;
    Kernel kernel;
    Arguments arguments;
  };
  static Work work(Device& device, std::uint32_t scale = 1, double factor = 1) {
    Work made{.scale = device.create_uniform(16, "a scale").value(),
              .numbers = device.create_buffer(kBytes, "numbers").value(),
              .sums = device.create_buffer(kBytes, "sums").value(),
              .kernel = device.create_kernel(source(kScaled, factor)).value(),
              .arguments = {}};
    std::vector<std::uint32_t> numbers(kNumbers);
    std::iota(numbers.begin(), numbers.end(), 0u);
    write(device, made.numbers, numbers);
    write(device, made.scale, {scale, 0, 0, 0});
    made.arguments =
        device.bind(made.kernel, std::vector<Binding>{{&made.scale}, {&made.numbers}, {&made.sums}})
            .value();
    return made;
  }

  static void write(Device& device, const Buffer& buffer, const std::vector<std::uint32_t>& words,
                    std::uint64_t offset = 0) {
    device.write(buffer, offset, std::as_bytes(std::span(words)));
  }
  static std::vector<std::uint32_t> read(Device& device, const Buffer& buffer, std::uint32_t words,
                                         std::uint64_t offset = 0) {
    std::vector<std::uint32_t> out(words, 77);
    const auto done = device.read(buffer, offset, std::as_writable_bytes(std::span(out)));
    EXPECT_TRUE(done) << done.error().message;
    return out;
  }
  static std::vector<std::uint32_t> multiples(std::uint32_t of) {
    std::vector<std::uint32_t> expected(kNumbers);
    for (std::uint32_t i = 0; i < kNumbers; ++i) expected[i] = i * of;
    return expected;
  }
};

TEST_F(DeviceTest, MemoryIsZeroAndKeepsWhatIsWritten) {
  const Buffer buffer = device().create_buffer(64, "words").value();
  EXPECT_TRUE(buffer);
  EXPECT_FALSE(Buffer());
  EXPECT_EQ(buffer.bytes(), 64u);
  EXPECT_EQ(read(device(), buffer, 16), std::vector<std::uint32_t>(16, 0));
  write(device(), buffer, {5, 6, 7}, 8);
  write(device(), buffer, {9}, 12);
  EXPECT_EQ(read(device(), buffer, 5, 4), (std::vector<std::uint32_t>{0, 5, 9, 7, 0}));
  EXPECT_TRUE(device().read(buffer, 0, {})) << "nothing is read at once";
  // A larger read than any before.
  const Buffer large = device().create_buffer(1 << 20, "words").value();
  EXPECT_EQ(read(device(), large, (1 << 20) / 4).back(), 0u);
}

TEST_F(DeviceTest, CopiesAndClearsHappenInTheOrderOfRecording) {
  const Buffer a = device().create_buffer(32, "a").value();
  const Buffer b = device().create_buffer(32, "b").value();
  write(device(), a, {1, 2, 3, 4, 5, 6, 7, 8});
  Recorder recorder = device().record();
  recorder.copy(b, 4, a, 8, 12);
  recorder.clear(a, 0, 16);
  recorder.copy(b, 16, a, 12, 8);
  ASSERT_TRUE(device().submit(std::move(recorder)));
  EXPECT_EQ(read(device(), b, 8), (std::vector<std::uint32_t>{0, 3, 4, 5, 0, 5, 0, 0}));
  EXPECT_EQ(read(device(), a, 8), (std::vector<std::uint32_t>{0, 0, 0, 0, 5, 6, 7, 8}));
}

TEST_F(DeviceTest, AKernelSeesItsUniformItsConstantAndAllThatCameBefore) {
  const Work w = work(device(), 3, 5);
  Recorder recorder = device().record();
  recorder.dispatch(w.kernel, w.arguments, kGroups);
  recorder.dispatch(w.kernel, w.arguments, 0);
  recorder.copy(w.numbers, 0, w.sums, 0, kBytes);
  recorder.dispatch(w.kernel, w.arguments, kGroups);
  std::vector<std::uint32_t> sums(kNumbers);
  const auto done = device().submit_and_read(std::move(recorder), w.sums, 0,
                                             std::as_writable_bytes(std::span(sums)));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(sums, multiples(15 + 15 * 15));
}

// A step writes its tables while the one before may still be running.
TEST_F(DeviceTest, AWriteComesAfterEarlierSubmissionsAndBeforeLaterOnes) {
  const Work w = work(device(), 1);
  for (const std::uint32_t scale : {1u, 10u, 100u}) {
    write(device(), w.scale, {scale, 0, 0, 0});
    Recorder recorder = device().record();
    recorder.dispatch(w.kernel, w.arguments, kGroups);
    ASSERT_TRUE(device().submit(std::move(recorder)));
  }
  write(device(), w.scale, {1000, 0, 0, 0});
  ASSERT_TRUE(device().wait());
  EXPECT_EQ(read(device(), w.sums, kNumbers), multiples(111));
}

TEST_F(DeviceTest, AnArgumentMayBeAPartOfABuffer) {
  const Work w = work(device(), 1);
  const std::uint64_t offset = device().adapter().limits.binding_alignment;
  const auto words = static_cast<std::uint32_t>(offset / 4);
  const auto arguments = device().bind(
      w.kernel, std::vector<Binding>{{&w.scale}, {&w.numbers, offset}, {&w.sums, offset, 8}});
  ASSERT_TRUE(arguments) << arguments.error().message;
  Recorder recorder = device().record();
  recorder.dispatch(w.kernel, *arguments, kGroups);
  ASSERT_TRUE(device().submit(std::move(recorder)));
  std::vector<std::uint32_t> expected(kNumbers, 0);
  expected[words] = words;
  expected[words + 1] = words + 1;
  EXPECT_EQ(read(device(), w.sums, kNumbers), expected);
}

// Each is the error of its own call, and the device goes on.
TEST_F(DeviceTest, ArgumentsThatDoNotFitAreRefused) {
  const Work w = work(device(), 2);
  const std::vector<std::vector<Binding>> wrong = {
      {{&w.scale}, {&w.numbers}},                         // one is missing
      {{&w.numbers}, {&w.scale}, {&w.sums}},              // a uniform is not one
      {{&w.scale}, {&w.numbers}, {&w.sums, 2}},           // no place for an argument
      {{&w.scale}, {&w.numbers}, {&w.sums, 0, 1 << 20}},  // more than there is
  };
  for (const auto& bindings : wrong) {
    const auto arguments = device().bind(w.kernel, bindings);
    ASSERT_FALSE(arguments);
    expect_error(arguments.error(), ErrorKind::invalid, "arguments of shader scaled: ");
  }
  Recorder recorder = device().record();
  recorder.dispatch(w.kernel, w.arguments, kGroups);
  ASSERT_TRUE(device().submit(std::move(recorder)));
  EXPECT_EQ(read(device(), w.sums, kNumbers), multiples(2));
}

TEST_F(DeviceTest, ARecordingThatBreaksTheRulesIsTheErrorOfItsSubmission) {
  const Buffer a = device().create_buffer(32, "a").value();
  const Buffer b = device().create_buffer(16, "b").value();
  write(device(), b, {1, 2, 3, 4});
  Recorder recorder = device().record();
  recorder.clear(b, 0, 8);
  recorder.copy(b, 0, a, 0, 32);
  const auto submitted = device().submit(std::move(recorder));
  ASSERT_FALSE(submitted);
  expect_error(submitted.error(), ErrorKind::invalid, "device: ");
  EXPECT_TRUE(device().wait()) << "said once";
  EXPECT_EQ(read(device(), b, 4), (std::vector<std::uint32_t>{1, 2, 3, 4})) << "nothing of it ran";
}

TEST_F(DeviceTest, AShaderThatIsWrongIsNamedWithItsFault) {
  KernelSource wrong = source();
  wrong.wgsl.replace(wrong.wgsl.find("numbers[id.x]"), 7, "nombres");
  const Error error = shader_error(wrong);
  expect_error(error, ErrorKind::shader, "shader scaled: ");
  EXPECT_THAT(error.message, HasSubstr("nombres"));
  wrong = source();
  wrong.entry = "other";
  expect_error(shader_error(wrong), ErrorKind::shader, "shader scaled: ");
  wrong = source();
  wrong.bindings.pop_back();
  expect_error(shader_error(wrong), ErrorKind::shader, "shader scaled: ");
  wrong = source();
  wrong.wgsl.replace(wrong.wgsl.find("size(64)"), 8, "size(65536)");
  expect_error(shader_error(wrong), ErrorKind::shader, "shader scaled: ");
  EXPECT_TRUE(device().create_kernel(source())) << "the next one is none the worse";
}

TEST_F(DeviceTest, MemoryThatAShaderCannotSeeIsRefusedWithBothNumbers) {
  const Limits& limits = device().adapter().limits;
  const std::uint64_t most = std::min(limits.max_binding_bytes, limits.max_buffer_bytes);
  const auto refused = device().create_buffer(most + 4, "keys and values");
  ASSERT_FALSE(refused);
  expect_error(refused.error(), ErrorKind::unsupported,
               "at most " + std::to_string(most) + " bytes");
  EXPECT_THAT(refused.error().message,
              HasSubstr("found " + std::to_string(most + 4) + " for keys and values"));
}

TEST_F(DeviceTest, MemoryThatADriverDoesNotGiveIsNamed) {
  const auto refused = device().create_uniform(std::uint64_t{1} << 50, "a step's sizes");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::out_of_memory);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("memory for a step's sizes: "), HasSubstr(device().adapter().name)));
  EXPECT_TRUE(device().create_uniform(16, "a step's sizes"));
}

TEST_F(DeviceTest, FeaturesAreThoseAskedForAndThere) {
  const auto plain = open({.adapter = "0", .subgroups = false, .f16 = false});
  EXPECT_FALSE(plain->adapter().features.f16);
  EXPECT_FALSE(plain->adapter().features.subgroups);
  const auto all = list_adapters().value();
  EXPECT_EQ(plain->adapter().name, all[0].name);
  const auto index = static_cast<std::size_t>(device().adapter().index);
  EXPECT_EQ(device().adapter().features.f16, all[index].features.f16);
  EXPECT_EQ(device().adapter().features.subgroups, all[index].features.subgroups);
}

TEST_F(DeviceTest, OfAnUnknownAdapterThereIsNone) {
  const auto device = Device::open({.adapter = "a GPU of nobody"});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().kind, ErrorKind::no_adapter);
  EXPECT_THAT(device.error().message, HasSubstr("found \"a GPU of nobody\""));
}

TEST_F(DeviceTest, ALostDeviceStaysLostAndSaysSoEveryTime) {
  auto lost = open();
  const Work w = work(*lost);
  Recorder begun = lost->record();
  begun.dispatch(w.kernel, w.arguments, kGroups);
  lost->destroy();
  lost->destroy();
  const auto expect_lost = [&](const auto& result) {
    ASSERT_FALSE(result);
    expect_error(result.error(), ErrorKind::lost, "device: lost");
  };
  std::vector<std::byte> out(16);
  write(*lost, w.sums, {1, 2});
  expect_lost(lost->submit(std::move(begun)));
  expect_lost(lost->submit(lost->record()));
  expect_lost(lost->read(w.sums, 0, out));
  expect_lost(lost->wait());
  expect_lost(lost->create_buffer(16, "more"));
  expect_lost(lost->create_uniform(16, "more"));
  expect_lost(lost->create_kernel(source()));
  expect_lost(lost->bind(w.kernel, std::vector<Binding>{{&w.scale}, {&w.numbers}, {&w.sums}}));
  // Another one of the same adapter works.
  const auto fresh = open();
  EXPECT_EQ(read(*fresh, fresh->create_buffer(16, "words").value(), 4),
            std::vector<std::uint32_t>(4, 0));
}

}  // namespace
}  // namespace gpu
