// What an accepted artifact gives: identity, views into the file, nothing copied, nothing read that
// need not be.
#include "model/artifact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "base/float16.h"
#include "convert/synthesize.h"
#include "support/editable_gguf.h"
#include "support/tiny_artifact.h"
#include "tokenizer/vocabulary.h"

namespace {

std::atomic<std::size_t> g_largest_allocation{0};

}  // namespace

// Every allocation of this program passes here, so that a test can ask for the largest one. Not
// inlined, or g++ takes the pair of operator new and free for a mistake.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  std::size_t seen = g_largest_allocation.load();
  while (bytes > seen && !g_largest_allocation.compare_exchange_weak(seen, bytes)) {
  }
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return ::operator new(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace kipp {
namespace {

using test::EditableGguf;
using test::raw;
using test::raw_array;
using test::raw_text;
using ::testing::HasSubstr;

constexpr OpenOptions kAllow{.allow_synthetic = true};
constexpr Scheme kSchemes[] = {Scheme::bf16, Scheme::q8_0, Scheme::affine4_gs32,
                               Scheme::scale4_gs32};

TEST(Artifact, OpensEveryShapeAndScheme) {
  for (const char* shape : {"tiny-tied", "tiny-untied"}) {
    for (const Scheme scheme : kSchemes) {
      const std::string path = test::tiny_artifact_path(shape, scheme);
      SCOPED_TRACE(path);
      const auto artifact = Artifact::open(path, kAllow);
      ASSERT_TRUE(artifact) << artifact.error().message;
      EXPECT_EQ(artifact->checkpoint().id, shape);
      EXPECT_EQ(artifact->scheme(), scheme);
      EXPECT_EQ(artifact->source_revision(), "seed-7");
      EXPECT_TRUE(artifact->source_files().empty());
      EXPECT_EQ(artifact->file_bytes(), std::filesystem::file_size(path));
    }
  }
}

void expect_view(const MatrixView& view, const Artifact& artifact, const std::string& name,
                 int rows, int cols, Scheme scheme) {
  SCOPED_TRACE(name);
  const StoredTensor* tensor = artifact.find_tensor(name);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(view.data, tensor->data.data());
  EXPECT_EQ(view.rows, rows);
  EXPECT_EQ(view.cols, cols);
  EXPECT_EQ(view.scheme, scheme);
  EXPECT_EQ(tensor->data.size(), static_cast<std::size_t>(rows) * row_bytes(scheme, cols));
}

TEST(Artifact, GivesEachMatrixItsPlace) {
  const auto opened =
      Artifact::open(test::tiny_artifact_path("tiny-untied", Scheme::scale4_gs32), kAllow);
  ASSERT_TRUE(opened) << opened.error().message;
  const auto& w = opened->weights();
  constexpr Scheme s = Scheme::scale4_gs32;
  expect_view(w.embed, *opened, "token_embd.weight", 151936, 64, Scheme::bf16);
  ASSERT_EQ(w.lm_head.n_parts, 1);
  expect_view(w.lm_head.parts[0], *opened, "output.weight", 151936, 64, Scheme::bf16);
  ASSERT_EQ(w.layers.size(), 5u);
  const auto& layer = w.layers[4];
  ASSERT_EQ(layer.qkv.n_parts, 3);
  expect_view(layer.qkv.parts[0], *opened, "blk.4.attn_q.weight", 2048, 64, s);
  expect_view(layer.qkv.parts[1], *opened, "blk.4.attn_k.weight", 1024, 64, s);
  expect_view(layer.qkv.parts[2], *opened, "blk.4.attn_v.weight", 1024, 64, s);
  expect_view(layer.attn_out.parts[0], *opened, "blk.4.attn_output.weight", 64, 2048, s);
  ASSERT_EQ(layer.gate_up.n_parts, 2);
  expect_view(layer.gate_up.parts[0], *opened, "blk.4.ffn_gate.weight", 96, 64, s);
  expect_view(layer.gate_up.parts[1], *opened, "blk.4.ffn_up.weight", 96, 64, s);
  expect_view(layer.down.parts[0], *opened, "blk.4.ffn_down.weight", 64, 96, s);
  EXPECT_EQ(layer.qkv.rows(), 4096);
  EXPECT_EQ(layer.attn_norm.size(), 64u);
  EXPECT_EQ(layer.q_norm.size(), 128u);
  EXPECT_EQ(layer.k_norm.size(), 128u);
  EXPECT_EQ(layer.mlp_norm.size(), 64u);
  EXPECT_EQ(w.final_norm.size(), 64u);
}

TEST(Artifact, TiedHeadIsTheEmbedding) {
  const auto opened = Artifact::open(test::tiny_artifact_path("tiny-tied", Scheme::q8_0), kAllow);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->weights().lm_head.parts[0].data, opened->weights().embed.data);
  EXPECT_EQ(opened->weights().lm_head.rows(), 151936);
  EXPECT_EQ(opened->find_tensor("output.weight"), nullptr);
}

TEST(Artifact, HoldsTheWeightsThatWereWritten) {
  const Checkpoint& entry = **find_synthetic("tiny-tied");
  const RowSource rows = synthetic_rows(entry, 7, 1);
  const auto opened = Artifact::open(test::tiny_artifact_path("tiny-tied", Scheme::bf16), kAllow);
  ASSERT_TRUE(opened) << opened.error().message;
  for (const StoredTensor& tensor : opened->tensors()) {
    SCOPED_TRACE(tensor.spec.name);
    EXPECT_EQ(tensor.offset % 64, 0u);
    const int row = tensor.spec.rows / 2;
    std::vector<std::uint16_t> expected(static_cast<std::size_t>(tensor.spec.cols));
    ASSERT_TRUE(rows(tensor.spec.name, row, 1, tensor.spec.cols, expected));
    std::vector<std::uint16_t> stored(expected.size());
    if (tensor.spec.role == TensorRole::norm) {
      const auto* values = reinterpret_cast<const float*>(tensor.data.data());
      std::transform(values, values + stored.size(), stored.begin(), f32_to_bf16);
    } else {
      const std::size_t bytes = row_bytes(Scheme::bf16, tensor.spec.cols);
      std::memcpy(stored.data(), tensor.data.data() + static_cast<std::size_t>(row) * bytes, bytes);
    }
    EXPECT_EQ(stored, expected);
  }
}

TEST(Artifact, GivesTheVocabularyOfTheFile) {
  const auto opened = Artifact::open(test::tiny_artifact_path("tiny-tied", Scheme::bf16), kAllow);
  ASSERT_TRUE(opened) << opened.error().message;
  const VocabularyView& view = opened->vocabulary();
  ASSERT_EQ(view.tokens.size(), 151936u);
  ASSERT_EQ(view.merges.size(), 151387u);
  EXPECT_EQ(view.tokens[9707], "Hello");
  EXPECT_EQ(view.tokens[198], "\xc4\x8a");  // newline in GPT-2's alphabet
  EXPECT_EQ(view.tokens[kImEnd], "<|im_end|>");
  EXPECT_EQ(view.tokens[151935], "[PAD151935]");
  EXPECT_EQ(view.merges[0], "\xc4\xa0 \xc4\xa0");
}

TEST(Artifact, ReadsNoWeights) {
  const test::Bytes& file = test::tiny_artifact("tiny-untied", Scheme::bf16);
  const auto plain = Artifact::from_bytes(file, kAllow);
  ASSERT_TRUE(plain) << plain.error().message;
  // Norms come first, so that everything from the embedding's second page on can be made
  // unreadable.
  void* memory =
      ::mmap(nullptr, file.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memcpy(memory, file.data(), file.size());
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t embedding = plain->find_tensor("token_embd.weight")->offset;
  const std::size_t sealed = (embedding + page - 1) / page * page;
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(memory) + sealed, file.size() - sealed, PROT_NONE),
            0);
  const auto opened = Artifact::from_bytes({static_cast<std::byte*>(memory), file.size()}, kAllow);
  EXPECT_TRUE(opened) << opened.error().message;
  ::munmap(memory, file.size());
}

TEST(Artifact, AcceptsKeysAndTensorsInAnyOrder) {
  EditableGguf gguf = EditableGguf::parse(test::tiny_artifact("tiny-tied", Scheme::bf16));
  std::reverse(gguf.values.begin(), gguf.values.end());
  std::reverse(gguf.tensors.begin(), gguf.tensors.end());
  const test::Bytes file = gguf.bytes();
  const auto opened = Artifact::from_bytes(file, kAllow);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->tensors().front().spec.name, "blk.0.attn_norm.weight");
}

TEST(Artifact, SurvivesTheRemovalOfItsFile) {
  const auto path = test::scratch_dir() / "removed.gguf";
  std::filesystem::copy_file(test::tiny_artifact_path("tiny-tied", Scheme::bf16), path);
  const auto opened = Artifact::open(path.string(), kAllow);
  ASSERT_TRUE(opened) << opened.error().message;
  std::filesystem::remove(path);
  const Artifact copy = *opened;  // a copy keeps the mapping alive too
  const std::span<const std::byte> last = copy.tensors().back().data;
  EXPECT_EQ(copy.checkpoint().id, "tiny-tied");
  EXPECT_TRUE(std::any_of(last.begin(), last.end(), [](std::byte b) { return b != std::byte{0}; }));
}

TEST(Artifact, NamesTheFileItRefuses) {
  const auto missing = Artifact::open("/no/such/model.gguf", {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::io);
  EXPECT_THAT(missing.error().message, HasSubstr("/no/such/model.gguf"));
  const auto path = test::scratch_dir() / "empty.gguf";
  test::write_file(path, {});
  const auto empty = Artifact::open(path.string(), {});
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ErrorCode::refused);
  EXPECT_THAT(empty.error().message, HasSubstr("empty.gguf"));
  EXPECT_FALSE(Artifact::open(test::scratch_dir().string(), {}));
}

TEST(Artifact, RefusesMemoryThatIsNotAligned) {
  test::Bytes shifted(test::tiny_artifact("tiny-tied", Scheme::bf16).size() + 1);
  const auto result = Artifact::from_bytes(std::span(shifted).subspan(1), kAllow);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::invalid);
}

// The head of an artifact of a pinned checkpoint, before any of its weights.
EditableGguf pinned_head(const Checkpoint& entry, Scheme scheme) {
  EditableGguf gguf = EditableGguf::parse(test::tiny_artifact("tiny-tied", Scheme::bf16));
  std::erase_if(gguf.values, [](const auto& v) { return v.type != test::kArray; });
  for (const MetadataEntry& wanted : artifact_metadata(entry, scheme, entry.revision)) {
    const std::string key(wanted.key);
    if (const auto* number = std::get_if<std::uint32_t>(&wanted.value)) {
      gguf.values.push_back({key, test::kU32, raw(*number)});
    } else if (const auto* real = std::get_if<float>(&wanted.value)) {
      gguf.values.push_back({key, test::kF32, raw(*real)});
    } else if (const auto* flag = std::get_if<bool>(&wanted.value)) {
      gguf.values.push_back({key, test::kBool, raw(*flag)});
    } else {
      gguf.values.push_back({key, test::kString, raw_text(std::get<std::string>(wanted.value))});
    }
  }
  if (!entry.files.empty()) {
    std::string names, hashes;
    for (const PinnedFile& file : entry.files) {
      names += raw_text(file.name);
      hashes += raw_text(file.sha256.empty() ? std::string(64, 'a') : std::string(file.sha256));
    }
    gguf.values.push_back({std::string(kSourceFilesKey), test::kArray,
                           raw_array(test::kString, entry.files.size(), names)});
    gguf.values.push_back({std::string(kSourceHashesKey), test::kArray,
                           raw_array(test::kString, entry.files.size(), hashes)});
  }
  gguf.tensors.clear();
  gguf.data.clear();
  std::uint64_t at = 0;
  for (const TensorSpec& spec : artifact_tensors(entry.config)) {
    std::vector<std::uint64_t> dims = {static_cast<std::uint64_t>(spec.cols)};
    if (spec.role != TensorRole::norm) dims.push_back(static_cast<std::uint64_t>(spec.rows));
    gguf.tensors.push_back(
        {spec.name, dims, static_cast<std::uint32_t>(stored_type(spec.role, scheme)), at});
    at += stored_bytes(spec, scheme);
  }
  return gguf;
}

// Writes the head and lets the file system make up the weights: a hole, read as zeros, takes no
// space.
std::filesystem::path write_sparse(const EditableGguf& gguf, const Checkpoint& entry,
                                   Scheme scheme) {
  const auto path = test::scratch_dir() / "sparse.gguf";
  test::write_file(path, gguf.bytes());
  std::uint64_t data = 0;
  for (const TensorSpec& spec : artifact_tensors(entry.config)) data += stored_bytes(spec, scheme);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + data);
  return path;
}

TEST(Artifact, OpensEveryCheckpointOfTheRegistryInEveryScheme) {
  for (const Checkpoint& entry : checkpoints()) {
    for (const Scheme scheme : kSchemes) {
      SCOPED_TRACE(fmt::format("{} {}", entry.id, to_string(scheme)));
      const auto path = write_sparse(pinned_head(entry, scheme), entry, scheme);
      const auto opened = Artifact::open(path.string(), {});
      ASSERT_TRUE(opened) << opened.error().message;
      EXPECT_EQ(&opened->checkpoint(), &entry);
      EXPECT_EQ(opened->source_files().size(), entry.files.size());
      std::int64_t values = 0;
      for (const StoredTensor& tensor : opened->tensors()) {
        values += std::int64_t{tensor.spec.rows} * tensor.spec.cols;
      }
      EXPECT_EQ(values, entry.parameters);
    }
  }
}

TEST(Artifact, RefusesSourceFilesThatAreNotThePinnedOnes) {
  const Checkpoint& entry = **find_checkpoint("qwen3-1.7b");
  const auto refusal = [&](auto&& spoil) -> std::string {
    EditableGguf gguf = pinned_head(entry, Scheme::bf16);
    spoil(gguf);
    const auto opened = Artifact::open(write_sparse(gguf, entry, Scheme::bf16).string(), {});
    return opened ? "accepted" : opened.error().message;
  };
  const auto edit = [](EditableGguf& gguf, std::string_view key, const std::string& from,
                       const std::string& to) {
    std::string& bytes = gguf.value(key).bytes;
    bytes.replace(bytes.find(from), from.size(), to);
  };
  const std::string shard(entry.files[0].name);
  const std::string hash(entry.files[0].sha256);
  EXPECT_THAT(refusal([&](auto& g) { edit(g, kSourceHashesKey, hash, std::string(64, '0')); }),
              HasSubstr("kipp.source.sha256 of " + shard + ": expected " + hash + ", found"));
  EXPECT_THAT(
      refusal([&](auto& g) { edit(g, kSourceFilesKey, shard, std::string(shard.size(), 'm')); }),
      HasSubstr("kipp.source.files: expected names of files of qwen3-1.7b, found \"mmm"));
  EXPECT_THAT(refusal([&](auto& g) {
                edit(g, kSourceFilesKey, raw_text(entry.files[1].name), raw_text(shard));
              }),
              HasSubstr("expected each file once, found " + shard));
  EXPECT_THAT(refusal([](auto& g) {
                g.remove(kSourceFilesKey);
                g.remove(kSourceHashesKey);
              }),
              HasSubstr("expected " + shard + " in the list, found 0 names"));
  EXPECT_THAT(refusal([](auto& g) { g.remove(kSourceHashesKey); }),
              HasSubstr("one kipp.source.sha256 each"));
  EXPECT_THAT(
      refusal([](auto& g) { g.value(kSourceFilesKey).bytes = raw_array(test::kI32, 1, raw(7)); }),
      HasSubstr("kipp.source.files: expected an array of strings"));
}

// Counts and lengths that a naive reader would allocate for.
TEST(Artifact, AllocatesNoMoreThanTheFileIsLong) {
  constexpr std::size_t kTables = 128 << 10;  // the bounded tables of keys and tensors
  const EditableGguf whole = EditableGguf::parse(test::tiny_artifact("tiny-tied", Scheme::bf16));
  const auto largest = [](const test::Bytes& file) {
    g_largest_allocation = 0;
    EXPECT_FALSE(Artifact::from_bytes(file, kAllow));
    return g_largest_allocation.load();
  };
  for (const std::uint64_t count :
       {std::uint64_t{100}, std::uint64_t{151936}, std::uint64_t{1} << 40}) {
    for (const std::uint32_t element : {test::kString, test::kI32, 0u}) {
      EditableGguf gguf = whole;
      gguf.data.clear();
      gguf.value("tokenizer.ggml.tokens").bytes = raw_array(element, count, "");
      gguf.remove("tokenizer.ggml.merges");
      gguf.remove("tokenizer.ggml.token_type");
      const test::Bytes file = gguf.bytes();
      EXPECT_LE(largest(file), file.size() + kTables) << count << " of type " << element;
    }
  }
  // As many of the smallest keys, and of the smallest tensors, as the counts allow.
  EditableGguf many;
  for (int i = 0; i < 64; ++i) many.values.push_back({fmt::format("k{}", i), 0, "\x01"});
  for (int i = 0; i < 1024; ++i) many.tensors.push_back({fmt::format("t{}", i), {1}, 0, 0});
  EXPECT_LE(largest(many.bytes()), many.bytes().size() + kTables);
  // An array of empty strings: the densest thing that takes memory for each element.
  many.values[3] = {"k3", test::kArray,
                    raw_array(test::kString, 151936, std::string(151936 * 8, '\0'))};
  EXPECT_LE(largest(many.bytes()), many.bytes().size());
}

}  // namespace
}  // namespace kipp
