// From a pulled directory to an artifact: its weights are the source's bit for bit, and nothing is
// written when any file is not the pinned one.
#include "convert/convert.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "base/mmap_file.h"
#include "model/gguf_reader.h"
#include "support/hub_directory.h"

namespace kipp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The artifact's tensors as bytes, by name.
struct Written {
  explicit Written(const std::string& path)
      : file(*MmapFile::open(path)), gguf(*read_gguf(file->bytes())) {
    for (const GgufTensor& tensor : gguf.tensors) tensors[std::string(tensor.name)] = &tensor;
  }
  const std::byte* data(const GgufTensor& tensor) const {
    return file->bytes().data() + gguf_align(gguf.table_end) + tensor.offset;
  }
  std::shared_ptr<const MmapFile> file;
  Gguf gguf;
  std::map<std::string, const GgufTensor*> tensors;
};

void expect_equal_weights(HubDirectory& hub, const Written& written) {
  const auto specs = artifact_tensors(hub.entry().config);
  ASSERT_EQ(written.tensors.size(), specs.size());
  for (const TensorSpec& spec : specs) {
    const auto& source = hub.tensor(hf_tensor_name(spec.name)).values;
    const GgufTensor& tensor = *written.tensors.at(spec.name);
    if (spec.role == TensorRole::norm) {
      ASSERT_EQ(tensor.type, static_cast<std::uint32_t>(GgmlType::f32));
      for (std::size_t i = 0; i < source.size(); ++i) {
        float value = 0;
        std::memcpy(&value, written.data(tensor) + i * 4, 4);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::uint32_t{source[i]} << 16) << spec.name;
      }
    } else {
      ASSERT_EQ(tensor.type, static_cast<std::uint32_t>(GgmlType::bf16));
      ASSERT_EQ(std::memcmp(written.data(tensor), source.data(), source.size() * 2), 0)
          << spec.name;
    }
  }
}

class Convert : public ::testing::Test {
 protected:
  static void make(HubDirectory& hub, int shards = 1) {
    hub.write_weights(shards);
    hub.write_small_files();
    hub.pin();
  }
  static ConvertOptions options(const HubDirectory& hub) {
    ConvertOptions options;
    options.from = hub.path();
    options.out = hub.path().string() + ".gguf";
    return options;
  }
  static std::string problem(const HubDirectory& hub) {
    const ConvertOptions o = options(hub);
    std::filesystem::remove(o.out);
    const auto report = convert(hub.entry(), o);
    if (report) return "none";
    EXPECT_EQ(report.error().code, ErrorCode::refused);
    expect_nothing_written(o);
    return report.error().message;
  }
  static void expect_nothing_written(const ConvertOptions& o) {
    EXPECT_FALSE(std::filesystem::exists(o.out));
    EXPECT_FALSE(std::filesystem::exists(o.out + ".partial"));
  }
};

TEST_F(Convert, OneFileOfATiedCheckpoint) {
  HubDirectory hub(true);
  make(hub);
  ConvertOptions o = options(hub);
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> progress;
  o.progress = [&](std::string_view label, std::uint64_t done, std::uint64_t total) {
    progress[std::string(label)] = {done, total};
  };
  const auto report = convert(hub.entry(), o);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->bytes, std::filesystem::file_size(o.out));
  EXPECT_TRUE(report->unverified.empty());
  EXPECT_EQ(progress.at("verifying").first, progress.at("verifying").second);
  EXPECT_EQ(progress.at("writing").second, report->bytes);

  const Written written(o.out);
  expect_equal_weights(hub, written);
  EXPECT_EQ(written.gguf.find("kipp.source.repository")->text, "Test/Tiny");
  EXPECT_EQ(written.gguf.find("kipp.source.revision")->text, hub.entry().revision);
  const GgufValue& files = *written.gguf.find("kipp.source.files");
  const GgufValue& hashes = *written.gguf.find("kipp.source.sha256");
  ASSERT_EQ(files.count, hub.entry().files.size());
  for (std::size_t i = 0; i < files.count; ++i) {
    EXPECT_EQ(files.element_text(i), hub.entry().files[i].name);
    EXPECT_EQ(hashes.element_text(i), hub.entry().files[i].sha256);
  }
  std::filesystem::remove(o.out);
}

TEST_F(Convert, ShardsOfAnUntiedCheckpoint) {
  HubDirectory hub(false);
  make(hub, 3);
  const ConvertOptions o = options(hub);
  const auto report = convert(hub.entry(), o);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  expect_equal_weights(hub, Written(o.out));
  std::filesystem::remove(o.out);
}

TEST_F(Convert, ARedundantHeadIsDroppedWhenEqualAndRefusedWhenNot) {
  HubDirectory hub(true);
  TestTensor head = hub.tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  hub.add(head);
  make(hub, 2);
  const ConvertOptions o = options(hub);
  const auto report = convert(hub.entry(), o);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  const Written written(o.out);
  EXPECT_FALSE(written.tensors.contains("output.weight"));
  expect_equal_weights(hub, written);

  hub.tensor("lm_head.weight").values.back() ^= 0x8000;
  make(hub, 2);
  EXPECT_THAT(problem(hub), HasSubstr("found another value in row 151935, column 31"));
}

TEST_F(Convert, TheSchemeIsForTheProjections) {
  HubDirectory hub(true);
  // Scales are FP16, which random bit patterns would overflow.
  for (TestTensor& tensor : hub.tensors()) {
    for (std::uint16_t& value : tensor.values)
      value = static_cast<std::uint16_t>(0x3c00u | (value & 0x83ffu));
  }
  make(hub);
  ConvertOptions o = options(hub);
  o.scheme = Scheme::q8_0;
  const auto report = convert(hub.entry(), o);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  const Written written(o.out);
  EXPECT_EQ(written.tensors.at("blk.0.attn_q.weight")->type,
            static_cast<std::uint32_t>(GgmlType::q8_0));
  EXPECT_EQ(written.tensors.at("token_embd.weight")->type,
            static_cast<std::uint32_t>(GgmlType::bf16));
  std::filesystem::remove(o.out);
}

TEST_F(Convert, EveryFileMustBeThePinnedOne) {
  HubDirectory hub(true);
  make(hub);
  ASSERT_EQ(problem(hub), "none");
  for (const PinnedFile& file : hub.entry().files) {
    const std::string name(file.name);
    const std::string right = read_bytes(hub.file(name));

    std::filesystem::remove(hub.path() / name);
    EXPECT_THAT(problem(hub), AllOf(HasSubstr("expected " + name + ", found no such file"),
                                    HasSubstr("kipp pull tiny-test")));
    hub.write(name, right + " ");
    EXPECT_THAT(problem(hub), HasSubstr(fmt::format("{}: size: expected {} bytes, found {}", name,
                                                    right.size(), right.size() + 1)));
    hub.write(name, right);
  }
  // Bytes that no other check looks at.
  const std::string weights = read_bytes(hub.file("model.safetensors"));
  std::string changed = weights;
  changed[weights.size() - 2] = static_cast<char>(changed[weights.size() - 2] ^ 1);
  hub.write("model.safetensors", changed);
  EXPECT_THAT(problem(hub), HasSubstr("model.safetensors: SHA-256: expected " +
                                      std::string(hub.pinned("model.safetensors").sha256)));
}

TEST_F(Convert, ContentsAreCheckedWhereNothingIsPinned) {
  HubDirectory hub(true);
  make(hub);
  const std::string config = read_bytes(hub.file("config.json"));
  for (const char* name : {"config.json", "tokenizer_config.json"}) {
    hub.pinned(name).bytes = 0;
    hub.pinned(name).sha256 = {};
  }
  hub.write("config.json", nlohmann::json::parse(config).dump(7));  // other bytes, same meaning
  const auto report = convert(hub.entry(), options(hub));
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_THAT(report->unverified, ElementsAre("config.json", "tokenizer_config.json"));

  auto wrong = nlohmann::json::parse(config);
  wrong["rope_theta"] = 10000;
  hub.write("config.json", wrong.dump());
  EXPECT_EQ(problem(hub), "config.json: rope_theta: expected 1000000, found 10000");
  hub.write("config.json", config);
  hub.write("tokenizer_config.json", hub_file("tokenizer_config.base.json"));
  EXPECT_THAT(problem(hub), HasSubstr("tokenizer_config.json: eos_token: expected \"<|im_end|>\""));
}

TEST_F(Convert, StopsWhenAskedAndLeavesAnOlderArtifactAlone) {
  HubDirectory hub(true);
  make(hub);
  for (const std::string_view stage : {"verifying", "writing"}) {
    ConvertOptions o = options(hub);
    std::ofstream(o.out) << "older";
    std::atomic<bool> cancel{false};
    o.cancel = &cancel;
    o.progress = [&](std::string_view label, std::uint64_t, std::uint64_t) {
      if (label == stage) cancel = true;
    };
    const auto report = convert(hub.entry(), o);
    ASSERT_FALSE(report.has_value());
    EXPECT_EQ(report.error().code, ErrorCode::interrupted) << report.error().message;
    EXPECT_EQ(read_bytes(o.out), "older");
    EXPECT_FALSE(std::filesystem::exists(o.out + ".partial"));
    std::filesystem::remove(o.out);
  }
}

}  // namespace
}  // namespace kipp
