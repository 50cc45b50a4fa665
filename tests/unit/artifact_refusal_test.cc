// One valid artifact, spoiled in one named way after the other: each must be refused with the
// field, what was expected and what was found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <functional>

#include "model/artifact.h"
#include "model/artifact_layout.h"
#include "support/editable_gguf.h"
#include "support/tiny_artifact.h"

namespace kipp {
namespace {

using test::EditableGguf;
using test::raw;
using test::raw_array;
using test::raw_text;
using ::testing::HasSubstr;

// Hundreds of buffers of 16 MB one after the other: keep the pages instead of asking for them anew.
[[maybe_unused]] const int kKeepPages =
    ::mallopt(M_MMAP_THRESHOLD, 1 << 30) + ::mallopt(M_TRIM_THRESHOLD, 1 << 30);

constexpr OpenOptions kAllow{.allow_synthetic = true};

const EditableGguf& valid() {
  static const EditableGguf gguf =
      EditableGguf::parse(test::tiny_artifact("tiny-tied", Scheme::bf16));
  return gguf;
}

void expect_refused(const Result<Artifact>& result, const std::vector<std::string>& says) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::refused);
  EXPECT_THAT(result.error().message, HasSubstr("expected"));
  EXPECT_THAT(result.error().message, HasSubstr("found"));
  for (const std::string& part : says) EXPECT_THAT(result.error().message, HasSubstr(part));
}

struct Spoiled {
  const char* name;
  std::function<void(EditableGguf&)> spoil;
  std::vector<std::string> says;
};

// One test per table: each test is a process of its own, which has to write the valid artifact
// first.
void expect_all_refused(std::span<const Spoiled> table) {
  for (const Spoiled& spoiled : table) {
    SCOPED_TRACE(spoiled.name);
    EditableGguf gguf = valid();
    spoiled.spoil(gguf);
    expect_refused(Artifact::from_bytes(gguf.bytes(), kAllow), spoiled.says);
  }
}

constexpr const char* kQ = "blk.1.attn_q.weight";
constexpr const char* kNorm = "blk.0.attn_norm.weight";

void poke(EditableGguf& gguf, const char* tensor, std::size_t at, std::string_view bytes) {
  gguf.data.replace(gguf.tensor(tensor).offset + at, bytes.size(), bytes);
}

// Replaces the first occurrence in an array's elements.
void edit(EditableGguf& gguf, const char* key, const std::string& from, const std::string& to) {
  std::string& bytes = gguf.value(key).bytes;
  const auto at = bytes.find(from);
  if (at == std::string::npos) throw std::out_of_range(from);
  bytes.replace(at, from.size(), to);
}

const Spoiled kHeader[] = {
    {"Magic", [](auto& g) { g.magic = "GGUX"; }, {"magic", "\"GGUF\"", "\"GGUX\""}},
    {"Version1", [](auto& g) { g.version = 1; }, {"version", "expected 3", "found 1"}},
    {"Version2", [](auto& g) { g.version = 2; }, {"version", "expected 3", "found 2"}},
    {"Version4", [](auto& g) { g.version = 4; }, {"version", "expected 3", "found 4"}},
    {"BigEndian", [](auto& g) { g.version = 0x03000000; }, {"version", "big-endian"}},
    {"OneTensorMore", [](auto& g) { g.n_tensors = g.tensors.size() + 1; }, {"name of tensor 35"}},
    {"OneTensorFewer",
     [](auto& g) { g.n_tensors = g.tensors.size() - 1; },
     {"blk.2.ffn_down.weight", "found 34"}},
    {"TensorCountTwoTo63",
     [](auto& g) { g.n_tensors = std::uint64_t{1} << 63; },
     {"tensor count", "found 9223372036854775808"}},
    {"OneKeyMore", [](auto& g) { g.n_values = g.values.size() + 1; }, {"name of tensor 0"}},
    {"OneKeyFewer", [](auto& g) { g.n_values = g.values.size() - 1; }, {"1 to 4 dimensions"}},
    {"KeyCountTwoTo63",
     [](auto& g) { g.n_values = std::uint64_t{1} << 63; },
     {"metadata count", "found 9223372036854775808"}},
    {"PaddingNotZero", [](auto& g) { g.padding = 'x'; }, {"padding", "zero bytes"}},
};

const Spoiled kIdentity[] = {
    {"AnotherRepository",
     [](auto& g) { g.set(kRepositoryKey, "Qwen/Qwen3-0.5B"); },
     {"repository", "kipp checkpoints", "Qwen/Qwen3-0.5B"}},
    {"RepositoryInCapitals",
     [](auto& g) { g.set(kRepositoryKey, "SYNTHETIC/tiny-tied"); },
     {"repository", "SYNTHETIC/tiny-tied"}},
    {"EmptyRepository", [](auto& g) { g.set(kRepositoryKey, ""); }, {"repository", "\"\""}},
    {"RepositoryOfControlBytes",
     [](auto& g) { g.set(kRepositoryKey, "a\x1b[31m\xff"); },
     {"kipp.source.repository", "printable", "\\x1b[31m\\xff"}},
    {"EndlessRepository",
     [](auto& g) { g.set(kRepositoryKey, std::string(100000, 'r')); },
     {"kipp.source.repository", "at most 128 bytes", "(100000 bytes)"}},
    {"RealRevisionOnTwin",
     [](auto& g) { g.set(kRevisionKey, "c1899de289a04d12100db370d81485cdf75e47ca"); },
     {"revision", "seed-<number>", "c1899de2"}},
    {"SeedWithLeadingZero",
     [](auto& g) { g.set(kRevisionKey, "seed-007"); },
     {"revision", "seed-007"}},
    {"SeedWithoutNumber", [](auto& g) { g.set(kRevisionKey, "seed-"); }, {"revision", "\"seed-\""}},
    {"TwinOfAnotherShape",
     [](auto& g) { g.set(kRepositoryKey, "synthetic/tiny-untied"); },
     {"general.name", "tiny-untied", "tiny-tied"}},
    {"SwappedForTheDemo",
     [](auto& g) {
       g.set(kRepositoryKey, "kipp/kipp-demo");
       g.set(kRevisionKey, "v1");
     },
     {"general.name", "kipp-demo", "tiny-tied"}},
    {"SwappedForAPinnedCheckpoint",
     [](auto& g) {
       g.set(kRepositoryKey, "Qwen/Qwen3-0.6B");
       g.set(kRevisionKey, "c1899de289a04d12100db370d81485cdf75e47ca");
       g.set("general.name", "qwen3-0.6b");
     },
     {"qwen3.block_count", "expected u32 28", "found u32 3"}},
    {"BranchInsteadOfRevision",
     [](auto& g) {
       g.set(kRepositoryKey, "Qwen/Qwen3-0.6B");
       g.set(kRevisionKey, "main");
     },
     {"revision of Qwen/Qwen3-0.6B", "c1899de2", "main"}},
    {"UnknownScheme",
     [](auto& g) { g.set(kSchemeKey, "q4_k_m"); },
     {"kipp.quant.scheme", "affine4_gs32", "q4_k_m"}},
    {"SchemeOfAnotherFile",
     [](auto& g) { g.set(kSchemeKey, "q8_0"); },
     {"general.file_type", "expected u32 7", "found u32 32"}},
    {"NotMadeByKipp",
     [](auto& g) {
       std::erase_if(g.values, [](const auto& v) { return v.key.starts_with("kipp."); });
     },
     {"kipp.source.repository", "found none", "kipp convert"}},
};

const Spoiled kMetadata[] = {
    {"UnknownValueType",
     [](auto& g) { g.value("qwen3.block_count").type = 13; },
     {"qwen3.block_count", "value type of 0 to 12", "found 13"}},
    {"EmptyKey", [](auto& g) { g.values[5].key = ""; }, {"metadata key 5", "found 0 bytes"}},
    {"KeyNotUtf8",
     [](auto& g) { g.values[5].key = "qwen3.\xc3\x28"; },
     {"metadata key 5", "\\xc3("}},
    {"RepeatedKey", [](auto& g) { g.values.push_back(g.values[6]); }, {"expected the key once"}},
    {"UnknownKey",
     [](auto& g) {
       g.values.push_back({"general.author", test::kString, raw_text("me")});
     },
     {"general.author", "no key of that name", "\"me\""}},
    {"RopeScalingKey",
     [](auto& g) {
       g.values.push_back({"qwen3.rope.scaling.factor", test::kF32, raw(4.0f)});
     },
     {"qwen3.rope.scaling.factor", "f32 4"}},
    {"ChatTemplateKey",
     [](auto& g) {
       g.values.push_back({"tokenizer.chat_template", test::kString, raw_text("{{ evil }}")});
     },
     {"tokenizer.chat_template", "no key of that name"}},
    {"SourceFilesOnATwin",
     [](auto& g) {
       g.values.push_back({std::string(kSourceFilesKey), test::kArray,
                           raw_array(test::kString, 1, raw_text("model.safetensors"))});
     },
     {"kipp.source.files", "no key of that name"}},
    {"QuantizationVersionOnBf16",
     [](auto& g) {
       g.values.push_back({"general.quantization_version", test::kU32, raw(2u)});
     },
     {"general.quantization_version", "no key of that name", "u32 2"}},
    {"NoLayers",
     [](auto& g) { g.set("qwen3.block_count", 0u); },
     {"qwen3.block_count", "u32 3", "u32 0"}},
    {"ManyLayers",
     [](auto& g) { g.set("qwen3.block_count", 33u); },
     {"qwen3.block_count", "u32 33"}},
    {"LayersTwoTo31",
     [](auto& g) { g.set("qwen3.block_count", 0x80000000u); },
     {"qwen3.block_count", "u32 2147483648"}},
    {"Alignment32",
     [](auto& g) { g.set("general.alignment", 32u); },
     {"general.alignment", "u32 64", "u32 32"}},
    {"EpsilonOneUlpOff",
     [](auto& g) { g.value("qwen3.attention.layer_norm_rms_epsilon").bytes = raw(0x358637beu); },
     {"layer_norm_rms_epsilon", "expected f32", "found f32"}},
    {"ThetaAsNan",
     [](auto& g) { g.value("qwen3.rope.freq_base").bytes = raw(0x7fc00000u); },
     {"qwen3.rope.freq_base", "expected f32 1000000", "found f32 nan"}},
    {"FutureFormat",
     [](auto& g) { g.set("kipp.format.version", 2u); },
     {"kipp.format.version", "u32 1", "u32 2"}},
    {"BosIsAdded",
     [](auto& g) { g.value("tokenizer.ggml.add_bos_token").bytes = "\x01"; },
     {"add_bos_token", "bool false", "bool true"}},
    {"BoolOfTwo",
     [](auto& g) { g.value("tokenizer.ggml.add_bos_token").bytes = "\x02"; },
     {"add_bos_token", "0 or 1", "found 2"}},
};

const Spoiled kVocabulary[] = {
    {"OneTokenRenamed",
     [](auto& g) { edit(g, "tokenizer.ggml.tokens", raw_text("Hello"), raw_text("Hullo")); },
     {"tokenizer.ggml.tokens", "XXH3-128"}},
    {"OneTokenLonger",
     [](auto& g) { edit(g, "tokenizer.ggml.tokens", raw_text("Hello"), raw_text("Hellos")); },
     {"tokenizer.ggml.tokens", "expected 2588248 bytes", "found 2588249"}},
    {"OneTokenFewer",
     [](auto& g) {
       edit(g, "tokenizer.ggml.tokens", raw_text("[PAD151935]"), "");
       g.value("tokenizer.ggml.tokens").bytes.replace(4, 8, raw(std::uint64_t{151935}));
     },
     {"tokenizer.ggml.tokens", "151936 string", "151935 string"}},
    {"MoreTokensThanRows",
     [](auto& g) {
       g.value("tokenizer.ggml.tokens").bytes.replace(4, 8, raw(std::uint64_t{151937}));
     },
     {"tokenizer.ggml.tokens", "at most 151936", "found 151937"}},
    {"TokenCountTwoTo63",
     [](auto& g) {
       g.value("tokenizer.ggml.tokens").bytes.replace(4, 8, raw(std::uint64_t{1} << 63));
     },
     {"tokenizer.ggml.tokens", "found 9223372036854775808"}},
    {"TokensAsNumbers",
     [](auto& g) {
       g.value("tokenizer.ggml.tokens").bytes = raw_array(test::kI32, 2, std::string(8, '\0'));
     },
     {"tokenizer.ggml.tokens", "151936 string", "2 i32"}},
    {"TokensAsNestedArray",
     [](auto& g) { g.value("tokenizer.ggml.tokens").bytes = raw_array(9, 1, raw_array(8, 0, "")); },
     {"tokenizer.ggml.tokens", "array of arrays"}},
    {"ControlTokenMadeNormal",
     [](auto& g) {
       std::string& bytes = g.value("tokenizer.ggml.token_type").bytes;
       bytes[12 + 4 * 151645] = 1;
     },
     {"tokenizer.ggml.token_type", "XXH3-128"}},
    {"TypesAsU32",
     [](auto& g) { g.value("tokenizer.ggml.token_type").bytes.replace(0, 4, raw(4u)); },
     {"tokenizer.ggml.token_type", "151936 i32", "151936 u32"}},
    {"FirstMergesSwapped",
     [](auto& g) {
       std::string& bytes = g.value("tokenizer.ggml.merges").bytes;
       const std::string first = bytes.substr(12, 8 + 5);
       if (first != raw_text("\xc4\xa0 \xc4\xa0")) throw std::out_of_range("first merge");
       bytes.erase(12, first.size());
       bytes += first;
     },
     {"tokenizer.ggml.merges", "XXH3-128"}},
    {"OneMergeFewer",
     [](auto& g) {
       std::string& bytes = g.value("tokenizer.ggml.merges").bytes;
       bytes.erase(12, 8 + 5);
       bytes.replace(4, 8, raw(std::uint64_t{151386}));
     },
     {"tokenizer.ggml.merges", "151387 string", "151386 string"}},
};

const Spoiled kTensors[] = {
    {"RenamedTensor",
     [](auto& g) { g.tensor(kQ).name = "blk.1.attn_qq.weight"; },
     {"tensor blk.1.attn_q.weight", "without it"}},
    {"LayerBeyondTheLast",
     [](auto& g) { g.tensor(kQ).name = "blk.3.attn_q.weight"; },
     {"tensor blk.1.attn_q.weight"}},
    {"RepeatedTensor",
     [](auto& g) { g.tensor(kQ).name = "blk.0.attn_q.weight"; },
     {"tensor blk.0.attn_q.weight", "expected it once"}},
    {"EmptyTensorName",
     [](auto& g) { g.tensor(kQ).name = ""; },
     {"name of tensor", "found 0 bytes"}},
    {"HeadOnTiedModel",
     [](auto& g) {
       auto head = g.tensor("token_embd.weight");
       head.name = "output.weight";
       head.offset = g.data.size();
       g.tensors.push_back(head);
       g.data += std::string(32 * 151936 * 2, '\0');
     },
     {"tensor output.weight", "expected no tensor of that name"}},
    {"BiasTensor",
     [](auto& g) {
       g.tensors.push_back({"blk.0.attn_q.bias", {1024}, 0, g.data.size()});
       g.data += std::string(4096, '\0');
     },
     {"tensor blk.0.attn_q.bias"}},
    {"MissingTensor",
     [](auto& g) {
       const std::size_t at = g.tensors.back().offset;
       g.tensors.pop_back();
       g.data.resize(at);
     },
     {"tensor blk.2.ffn_down.weight", "35 tensors", "found 34"}},
    {"TransposedShape",
     [](auto& g) { std::swap(g.tensor(kQ).dims[0], g.tensor(kQ).dims[1]); },
     {"shape of blk.1.attn_q.weight", "expected [32, 1024]", "found [1024, 32]"}},
    {"OneRowFewer",
     [](auto& g) { --g.tensor("token_embd.weight").dims[1]; },
     {"shape of token_embd.weight", "[32, 151936]", "[32, 151935]"}},
    {"ThirdDimension",
     [](auto& g) { g.tensor(kQ).dims.push_back(1); },
     {"shape of blk.1.attn_q.weight", "found [32, 1024, 1]"}},
    {"NormWithTwoDimensions",
     [](auto& g) {
       g.tensor(kNorm).dims = {32, 1};
     },
     {"shape of blk.0.attn_norm.weight", "expected [32]", "found [32, 1]"}},
    {"NoDimensions", [](auto& g) { g.tensor(kQ).dims.clear(); }, {"1 to 4 dimensions", "found 0"}},
    {"FiveDimensions",
     [](auto& g) {
       g.tensor(kQ).dims = {32, 1024, 1, 1, 1};
     },
     {"found 5"}},
    {"ZeroDimension", [](auto& g) { g.tensor(kQ).dims[1] = 0; }, {"dimension 1 = 0"}},
    {"DimensionTwoTo42Plus1",
     [](auto& g) { g.tensor(kQ).dims[0] = (std::uint64_t{1} << 42) + 1; },
     {"shape of blk.1.attn_q.weight", "found [4398046511105, 1024]"}},
    {"ProductWraps",
     [](auto& g) {
       g.tensor(kQ).dims = {(std::uint64_t{1} << 42) + 1, std::uint64_t{1} << 42};
     },
     {"tensor blk.1.attn_q.weight", "below 2^63"}},
    {"F16InsteadOfBf16",
     [](auto& g) { g.tensor(kQ).type = 1; },
     {"type of blk.1.attn_q.weight", "expected BF16 (30)", "(1)"}},
    {"F32InsteadOfBf16",
     [](auto& g) { g.tensor(kQ).type = 0; },
     {"type of blk.1.attn_q.weight", "expected BF16 (30)", "found F32 (0)"}},
    {"Bf16Norm",
     [](auto& g) { g.tensor(kNorm).type = 30; },
     {"type of blk.0.attn_norm.weight", "expected F32 (0)", "found BF16 (30)"}},
    {"UnknownTensorType", [](auto& g) { g.tensor(kQ).type = 4096; }, {"type of", "(4096)"}},
    {"NegativeTensorType",
     [](auto& g) { g.tensor(kQ).type = 0xffffffff; },
     {"type of", "(4294967295)"}},
};

const Spoiled kPlacement[] = {
    {"MisalignedOffset", [](auto& g) { g.tensor(kQ).offset += 1; }, {"offset of", "misaligned"}},
    {"OffsetAlignedTo32Only",
     [](auto& g) { g.tensor(kQ).offset += 32; },
     {"offset of", "misaligned"}},
    {"GapBeforeATensor",
     [](auto& g) { g.tensors.back().offset += 64; },
     {"offset of blk.2.ffn_down.weight", "a gap"}},
    {"OverlapWithTheOneBefore",
     [](auto& g) { g.tensors.back().offset -= 64; },
     {"offset of blk.2.ffn_down.weight", "overlapping"}},
    {"TwoTensorsAtOnePlace",
     [](auto& g) {
       g.tensor("blk.0.attn_k.weight").offset = g.tensor("blk.0.attn_v.weight").offset;
     },
     {"offset of blk.0.attn"}},
    {"EverythingAtZero",
     [](auto& g) {
       for (auto& tensor : g.tensors) tensor.offset = 0;
     },
     {"offset of", "found 0 (overlapping)"}},
    {"OffsetTwoTo63", [](auto& g) { g.tensor(kQ).offset = std::uint64_t{1} << 63; }, {"offset of"}},
    {"OffsetWraps", [](auto& g) { g.tensor(kQ).offset = ~std::uint64_t{63}; }, {"offset of"}},
    {"GapBeforeTheFirst",
     [](auto& g) {
       for (auto& tensor : g.tensors) tensor.offset += 64;
       g.data.insert(0, std::string(64, '\0'));
     },
     {"offset of blk.0.attn_norm.weight", "expected 0", "found 64"}},
    {"OneByteMissing",
     [](auto& g) { g.data.pop_back(); },
     {"file size", "expected 16481984 bytes", "found 16481983", "1 missing"}},
    {"HalfTheDataMissing",
     [](auto& g) { g.data.resize(g.data.size() / 2); },
     {"file size", "expected 16481984 bytes", "missing"}},
    {"NoData",
     [](auto& g) { g.data.clear(); },
     {"file size", "expected 16481984 bytes", "missing"}},
    {"OneByteTooMany",
     [](auto& g) { g.data += '\0'; },
     {"file size", "expected 16481984 bytes", "found 16481985", "1 too many"}},
    {"OneBlockTooMany",
     [](auto& g) { g.data += std::string(64, '\0'); },
     {"file size", "64 too many"}},
    {"NormBelowBf16",
     [](auto& g) { poke(g, kNorm, 4, raw(std::uint32_t{0x3f800001})); },
     {"blk.0.attn_norm.weight element 1", "BF16 holds exactly", "0x3f800001"}},
    {"NormInfinite",
     [](auto& g) { poke(g, "output_norm.weight", 0, raw(std::uint32_t{0x7f800000})); },
     {"output_norm.weight element 0", "finite", "0x7f800000"}},
    {"NormNotANumber",
     [](auto& g) { poke(g, "blk.2.attn_k_norm.weight", 508, raw(std::uint32_t{0xffc00000})); },
     {"blk.2.attn_k_norm.weight element 127", "finite"}},
};

TEST(ArtifactRefusal, Header) { expect_all_refused(kHeader); }
TEST(ArtifactRefusal, Identity) { expect_all_refused(kIdentity); }
TEST(ArtifactRefusal, Metadata) { expect_all_refused(kMetadata); }
TEST(ArtifactRefusal, Vocabulary) { expect_all_refused(kVocabulary); }
TEST(ArtifactRefusal, Tensors) { expect_all_refused(kTensors); }
TEST(ArtifactRefusal, Placement) { expect_all_refused(kPlacement); }

TEST(ArtifactRefusal, ATwinWithoutPermission) {
  expect_refused(Artifact::from_bytes(test::tiny_artifact("tiny-tied", Scheme::bf16), {}),
                 {"kipp.source.repository", "synthetic twin tiny-tied", "--allow-synthetic"});
}

TEST(ArtifactRefusal, AnyKeyThatIsMissing) {
  for (const auto& value : valid().values) {
    SCOPED_TRACE(value.key);
    EditableGguf gguf = valid();
    gguf.remove(value.key);
    expect_refused(Artifact::from_bytes(gguf.bytes(), kAllow), {value.key});
  }
}

TEST(ArtifactRefusal, AnyKeyOfAnotherType) {
  for (std::size_t i = 0; i < valid().values.size(); ++i) {
    EditableGguf gguf = valid();
    auto& value = gguf.values[i];
    SCOPED_TRACE(value.key);
    // A number as u64 of the same value, everything else as a number.
    const bool number = value.type == test::kU32;
    value.bytes = number ? value.bytes + std::string(4, '\0') : raw(std::uint64_t{7});
    value.type = test::kU64;
    expect_refused(Artifact::from_bytes(gguf.bytes(), kAllow), {value.key, "u64"});
  }
}

// The lowest bit of the last byte: the closest value there is for numbers and texts.
TEST(ArtifactRefusal, AnyKeyOfAnotherValue) {
  for (std::size_t i = 0; i < valid().values.size(); ++i) {
    EditableGguf gguf = valid();
    auto& value = gguf.values[i];
    // Any seed is a valid revision, so that of another one is no refusal.
    if (value.key == kRevisionKey) continue;
    SCOPED_TRACE(value.key);
    const bool scalar = value.type != test::kString && value.type != test::kArray;
    char& byte = scalar ? value.bytes.front() : value.bytes.back();
    byte = static_cast<char>(byte ^ 1);
    const bool identity = value.key == kRepositoryKey;
    expect_refused(Artifact::from_bytes(gguf.bytes(), kAllow),
                   {identity ? "repository" : value.key});
  }
}

TEST(ArtifactRefusal, AnyTensorThatIsMissingOrReshapedOrRetypedOrMoved) {
  EditableGguf gguf = valid();
  const auto refused = [&](const std::string& says) {
    expect_refused(Artifact::from_bytes(gguf.bytes(), kAllow), {says});
  };
  for (std::size_t i = 0; i < gguf.tensors.size(); ++i) {
    const EditableGguf::Tensor tensor = gguf.tensors[i];
    SCOPED_TRACE(tensor.name);
    const auto at = [&] { return gguf.tensors.begin() + static_cast<std::ptrdiff_t>(i); };
    gguf.tensors.erase(at());
    refused("tensor " + tensor.name);
    gguf.tensors.insert(at(), tensor);
    gguf.tensors[i].dims[0] += 32;
    refused("shape of " + tensor.name);
    gguf.tensors[i] = tensor;
    gguf.tensors[i].type = 8;
    refused("type of " + tensor.name);
    gguf.tensors[i] = tensor;
    gguf.tensors[i].offset += 64;
    refused("offset of ");
    gguf.tensors[i] = tensor;
  }
}

// Cut at the end of every field, and at many places between. Each prefix has memory of its own
// size, so that a sanitizer sees a read past its end.
TEST(ArtifactRefusal, EveryPrefix) {
  const test::Bytes& whole = test::tiny_artifact("tiny-tied", Scheme::bf16);
  std::vector<std::size_t> cuts = valid().boundaries();
  for (std::size_t at = 1000; at < whole.size(); at += 131071) cuts.push_back(at);
  for (const std::size_t cut : cuts) {
    SCOPED_TRACE(cut);
    const test::Bytes prefix(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
    expect_refused(Artifact::from_bytes(prefix, kAllow), {});
  }
}

}  // namespace
}  // namespace kipp
