// A packed checkpoint built by hand in the shape of tiny-tied, and what becomes of it.
#include "convert/demo_pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/float16.h"
#include "base/rng.h"
#include "convert/hf_weights.h"
#include "convert/sha256.h"
#include "model/artifact.h"
#include "support/tiny_artifact.h"

namespace kipp {
namespace {

using ::testing::HasSubstr;

struct PackedTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using Packed = std::map<std::string, PackedTensor>;

const Checkpoint& tiny() { return **find_synthetic("tiny-tied"); }
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kUp = "model.layers.1.mlp.up_proj.weight";

std::string codes(std::uint64_t seed, std::int64_t n) {
  std::string out(static_cast<std::size_t>(n), '\0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(draw_bits(seed, i));
  return out;
}

void set_rows(Packed& packed, const std::vector<std::int32_t>& ids) {
  const auto n = static_cast<std::int64_t>(ids.size());
  std::string bytes(ids.size() * 4, '\0');
  std::memcpy(bytes.data(), ids.data(), bytes.size());
  packed[std::string(kEmbedding) + ".rows"] = {"I32", {n}, bytes};
  packed[std::string(kEmbedding) + ".codes"] = {"I8", {n, 32}, codes(99, n * 32)};
  packed[std::string(kEmbedding) + ".exponents"] = {
      "I8", {n}, std::string(ids.size(), '\xf8')};  // -8
}

Packed valid() {
  Packed packed;
  std::uint64_t seed = 0;
  for (const TensorSpec& spec : artifact_tensors(tiny().config)) {
    const std::string name = hf_tensor_name(spec.name);
    ++seed;
    if (spec.role == TensorRole::norm) {
      std::string bytes;
      for (int i = 0; i < spec.cols; ++i) {
        const std::uint16_t one = f32_to_bf16(1.0f + static_cast<float>(i % 4) / 8);
        bytes.append(reinterpret_cast<const char*>(&one), 2);
      }
      packed[name] = {"BF16", {spec.cols}, bytes};
    } else if (spec.role == TensorRole::projection) {
      packed[name + ".codes"] = {
          "I8", {spec.rows, spec.cols}, codes(seed, std::int64_t{spec.rows} * spec.cols)};
      std::string exponents(static_cast<std::size_t>(spec.rows), '\0');
      for (std::size_t i = 0; i < exponents.size(); ++i)
        exponents[i] = static_cast<char>(-10 - int(i % 3));
      packed[name + ".exponents"] = {"I8", {spec.rows}, exponents};
    }
  }
  set_rows(packed, {0, 7, 151643, 151668, -1});
  return packed;
}

std::vector<std::byte> compress(const Packed& packed) {
  nlohmann::ordered_json header;
  std::string data;
  for (const auto& [name, tensor] : packed) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += text + data;
  std::vector<std::byte> out(ZSTD_compressBound(file.size()));
  out.resize(ZSTD_compress(out.data(), out.size(), file.data(), file.size(), 1));
  return out;
}

std::string scratch(const char* name) { return (test::scratch_dir() / name).string(); }

Result<void> unpack(const std::vector<std::byte>& packed, const std::string& path,
                    std::string_view sha256 = "") {
  return unpack_checkpoint(packed, tiny(), "seed-0", sha256, path, {});
}

float stored_value(const StoredTensor& tensor, int row, int col) {
  std::uint16_t bits;
  const std::size_t at =
      static_cast<std::size_t>(row) * static_cast<std::size_t>(tensor.spec.cols) +
      static_cast<std::size_t>(col);
  std::memcpy(&bits, tensor.data.data() + 2 * at, sizeof(bits));
  return bf16_to_f32(bits);
}

TEST(DemoPack, UnpacksEveryWeight) {
  const std::string path = scratch("unpacked.gguf");
  const Packed packed = valid();
  const auto done = unpack(compress(packed), path);
  ASSERT_TRUE(done) << done.error().message;
  const auto artifact = Artifact::open(path, {.allow_synthetic = true});
  ASSERT_TRUE(artifact) << artifact.error().message;
  for (const StoredTensor& tensor : artifact->tensors()) {
    SCOPED_TRACE(tensor.spec.name);
    if (tensor.spec.role == TensorRole::norm) {
      const auto* values = reinterpret_cast<const float*>(tensor.data.data());
      for (int i = 0; i < tensor.spec.cols; ++i)
        ASSERT_EQ(values[i], 1.0f + static_cast<float>(i % 4) / 8);
      continue;
    }
    if (tensor.spec.role == TensorRole::embedding) continue;
    const std::string& codes_of = packed.at(hf_tensor_name(tensor.spec.name) + ".codes").bytes;
    std::size_t at = 0;
    for (int row = 0; row < tensor.spec.rows; ++row) {
      for (int col = 0; col < tensor.spec.cols; ++col, ++at) {
        const auto code = static_cast<signed char>(codes_of[at]);
        ASSERT_EQ(stored_value(tensor, row, col),
                  std::ldexp(static_cast<float>(code), -10 - row % 3));
      }
    }
  }
}

TEST(DemoPack, SharesOneRowAmongTokensThatAreNotListed) {
  const std::string path = scratch("rows.gguf");
  const Packed packed = valid();
  ASSERT_TRUE(unpack(compress(packed), path));
  const auto artifact = Artifact::open(path, {.allow_synthetic = true});
  ASSERT_TRUE(artifact) << artifact.error().message;
  const StoredTensor& embedding = *artifact->find_tensor("token_embd.weight");
  const std::string& stored = packed.at(std::string(kEmbedding) + ".codes").bytes;
  const std::map<int, int> places = {{0, 0}, {7, 1}, {151643, 2}, {151668, 3},
                                     {1, 4}, {8, 4}, {151669, 4}, {151935, 4}};
  for (const auto& [token, place] : places) {
    for (int col = 0; col < 32; ++col) {
      const auto code =
          static_cast<signed char>(stored[static_cast<std::size_t>(32 * place + col)]);
      ASSERT_EQ(stored_value(embedding, token, col), std::ldexp(static_cast<float>(code), -8))
          << token;
    }
  }
}

TEST(DemoPack, GivesTheNameOnlyToTheExpectedFile) {
  const std::string path = scratch("hashed.gguf");
  const auto packed = compress(valid());
  const auto wrong = unpack(packed, path, std::string(64, '0'));
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("expected a file with SHA-256 000"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".unverified"));
  EXPECT_FALSE(std::filesystem::exists(path + ".unverified.partial"));
  ASSERT_TRUE(unpack(packed, path));
  const auto hash = sha256_of_file(path, {}, nullptr);
  ASSERT_TRUE(hash);
  EXPECT_TRUE(unpack(packed, path, *hash));
}

TEST(DemoPack, RefusesWhatIsNotTheFormat) {
  struct Case {
    const char* says;
    std::function<void(Packed&)> spoil;
  };
  const std::string rows = std::string(kEmbedding) + ".rows";
  const std::vector<Case> cases = {
      {"up_proj.weight.codes: expected I8 [64, 32], found no such tensor",
       [](Packed& p) { p.erase(std::string(kUp) + ".codes"); }},
      {"up_proj.weight.exponents: expected I8 [64], found no such tensor",
       [](Packed& p) { p.erase(std::string(kUp) + ".exponents"); }},
      {"up_proj.weight.codes: expected I8 [64, 32], found I8 [32, 64]",
       [](Packed& p) {
         p[std::string(kUp) + ".codes"].shape = {32, 64};
       }},
      {"model.norm.weight: expected BF16 [32], found F32 [16]",
       [](Packed& p) {
         p["model.norm.weight"].dtype = "F32";
         p["model.norm.weight"].shape = {16};
       }},
      {"expected 58 tensors, found 59",
       [](Packed& p) {
         p["lm_head.weight"] = {"I8", {1}, "x"};
       }},
      {"exponents row 5: expected an exponent of -100 to 100, found -128",
       [](Packed& p) { p[std::string(kUp) + ".exponents"].bytes[5] = '\x80'; }},
      {"rows: expected I32 [1], found no such tensor", [&](Packed& p) { p.erase(rows); }},
      {"rows element 2: expected ascending token ids, found 7",
       [](Packed& p) {
         set_rows(p, {0, 7, 7, -1});
       }},
      {"rows element 1: expected ascending token ids, found 151936",
       [](Packed& p) {
         set_rows(p, {0, 151936, -1});
       }},
      {"rows element 0: expected ascending token ids, found -1",
       [](Packed& p) {
         set_rows(p, {-1, 0, -1});
       }},
      {"rows element 2: expected -1 at the end, found 9",
       [](Packed& p) {
         set_rows(p, {0, 7, 9});
       }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.says);
    Packed packed = valid();
    c.spoil(packed);
    const std::string path = scratch("refused.gguf");
    const auto done = unpack(compress(packed), path);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::refused);
    EXPECT_THAT(done.error().message, HasSubstr(c.says));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(DemoPack, RefusesDamagedCompression) {
  auto packed = compress(valid());
  EXPECT_FALSE(unpack({}, scratch("damaged.gguf")));
  auto cut = packed;
  cut.resize(cut.size() / 2);
  const auto half = unpack(cut, scratch("damaged.gguf"));
  ASSERT_FALSE(half);
  EXPECT_THAT(half.error().message, HasSubstr("expected intact zstd data, found:"));
  packed[0] = std::byte{0};
  const auto magic = unpack(packed, scratch("damaged.gguf"));
  ASSERT_FALSE(magic);
  EXPECT_THAT(magic.error().message, HasSubstr("expected a zstd frame"));
}

}  // namespace
}  // namespace kipp
