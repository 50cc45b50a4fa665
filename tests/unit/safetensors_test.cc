// What the reader accepts, and that each way of being wrong is refused with a sentence that names
// it.
#include "convert/safetensors.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace kipp {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> file_of(std::string header, std::size_t data_bytes,
                               std::int64_t length_error = 0) {
  const auto length =
      static_cast<std::uint64_t>(static_cast<std::int64_t>(header.size()) + length_error);
  std::vector<std::byte> file(8 + header.size() + data_bytes);
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<std::byte>(length >> (8 * i));
  std::memcpy(file.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < data_bytes; ++i) {
    file[8 + header.size() + i] = static_cast<std::byte>(i * 7 + 1);
  }
  return file;
}

std::string refusal(const std::vector<std::byte>& file) {
  const auto parsed = Safetensors::from_bytes(file, "x.safetensors");
  if (parsed.has_value()) return "accepted";
  EXPECT_EQ(parsed.error().code, ErrorCode::refused);
  return parsed.error().message;
}

constexpr auto kTwo = R"({"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})";

TEST(Safetensors, ReadsTensorsOfEveryDtypeWhereverTheyLie) {
  const auto file = file_of(R"({"__metadata__":{"format":"pt","note":"line\nbreak"},)"
                            R"("w":{"data_offsets":[10,22],"shape":[2,3],"dtype":"BF16"},)"
                            R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                            R"("q":{"dtype":"I8","shape":[6],"data_offsets":[4,10]},)"
                            R"("ids":{"dtype":"I32","shape":[1,1,2],"data_offsets":[22,30]}}   )",
                            30);
  const auto parsed = Safetensors::from_bytes(file, "x.safetensors");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->tensors().size(), 4u);
  EXPECT_EQ(parsed->metadata().at("format"), "pt");
  EXPECT_EQ(parsed->header_bytes() + 30, file.size());
  const auto* w = parsed->find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->dtype, DType::bf16);
  EXPECT_THAT(w->shape, ::testing::ElementsAre(2, 3));
  EXPECT_EQ(w->bytes.size(), 12u);
  EXPECT_EQ(w->bytes.data(), file.data() + parsed->header_bytes() + 10);
  EXPECT_EQ(parsed->find("scalar")->bytes.size(), 4u);
  EXPECT_EQ(parsed->find("q")->dtype, DType::i8);
  EXPECT_EQ(parsed->find("ids")->dtype, DType::i32);
  EXPECT_EQ(parsed->find("nothing"), nullptr);
}

TEST(Safetensors, ReadsAFileAndKeepsItMapped) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "kipp_two.safetensors";
  const auto bytes = file_of(kTwo, 20);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  auto opened = Safetensors::open(path);
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const Safetensors kept = *std::move(opened);
  std::filesystem::remove(path);
  EXPECT_EQ(std::memcmp(kept.find("b")->bytes.data(), bytes.data() + bytes.size() - 8, 8), 0);
  EXPECT_FALSE(Safetensors::open(path).has_value());
}

TEST(Safetensors, AcceptsAFileWithoutTensors) {
  EXPECT_EQ(refusal(file_of("{}", 0)), "accepted");
  EXPECT_EQ(refusal(file_of(R"({"__metadata__":{}})", 0)), "accepted");
}

struct Mutation {
  std::string name;
  std::string header;
  std::size_t data_bytes;
  std::string expected;  // part of the refusal
};

std::string one(std::string_view fields) { return fmt::format("{{\"a\":{{{}}}}}", fields); }

std::vector<Mutation> mutations() {
  const std::string shape = R"("dtype":"BF16","shape":)";
  const std::string offsets = R"(,"data_offsets":)";
  return {
      {"empty header", "", 12, "header length: expected 2 to 12 bytes, found 0"},
      {"array on top", "[]", 0, "starts with '{'"},
      {"byte order mark", "\xef\xbb\xbf{}", 0, "starts with '{'"},
      {"space first", " {}", 0, "starts with '{'"},
      {"unfinished", R"({"a":{"dtype":"BF16")", 0, "error at byte 21"},
      {"text after the object", "{} {}", 0, "error at byte 4"},
      {"comment", "{/* */}", 0, "error at byte"},
      {"trailing comma", "{\"a\":1,}", 0, "a: expected an object, found a number"},
      {"NUL", std::string("{}\0{}", 5), 0, "NUL byte"},
      {"invalid UTF-8", "{\"\xff\":{}}", 0, "error at byte 3"},
      {"lone surrogate", "{\"\\ud800\":{}}", 0, "error at byte"},
      {"tensor is null", R"({"a":null})", 0, "a: expected an object, found null"},
      {"tensor is an array", R"({"a":[1]})", 0, "a: expected an object, found an array"},
      {"tensor is a string", R"({"a":"b"})", 0, "a: expected an object, found a string"},
      {"empty tensor", one(""), 0, "a: expected a dtype, found none"},
      {"no name", R"({"":{}})", 0, "printable keys"},
      {"control character in a name", R"({"a\u001b[2J":{}})", 0, "printable keys"},
      {"name too long", fmt::format("{{\"{}\":{{}}}}", std::string(201, 'a')), 0, "printable keys"},
      {"name twice", R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"a":{}})", 1,
       "a: expected it once, found it twice"},
      {"field twice", one(R"("dtype":"I8","dtype":"I8")"), 0, "a.dtype: expected it once"},
      {"shape twice", one(R"("shape":[1],"shape":[1])"), 0, "a.shape: expected it once"},
      {"offsets twice", one(R"("data_offsets":[],"data_offsets":[])"), 0,
       "a.data_offsets: expected it once"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0,
       "__metadata__: expected it once"},
      {"metadata key twice", R"({"__metadata__":{"k":"1","k":"2"}})", 0,
       "__metadata__.k: expected it once"},
      {"metadata number", R"({"__metadata__":{"k":1}})", 0,
       "__metadata__.k: expected a string, found a number"},
      {"metadata nested", R"({"__metadata__":{"k":{}}})", 0,
       "__metadata__.k: expected a string, found an object"},
      {"metadata array", R"({"__metadata__":[]})", 0,
       "__metadata__: expected an object, found an array"},
      {"unknown field", one(R"("strides":[1])"), 0,
       "a: expected dtype, shape or data_offsets, found strides"},
      {"no dtype", one(R"("shape":[1],"data_offsets":[0,1])"), 1, "a: expected a dtype"},
      {"no shape", one(R"("dtype":"I8","data_offsets":[0,1])"), 1, "a: expected a shape"},
      {"no offsets", one(R"("dtype":"I8","shape":[1])"), 1, "a: expected a data_offsets"},
      {"other dtype", one(R"("dtype":"F16","shape":[1],"data_offsets":[0,2])"), 2,
       "a.dtype: expected BF16, F32, I8 or I32, found F16"},
      {"lower-case dtype", one(R"("dtype":"bf16","shape":[1],"data_offsets":[0,2])"), 2,
       "found bf16"},
      {"dtype number", one(R"("dtype":1)"), 0, "a.dtype: expected a string, found a number"},
      {"dtype array", one(R"("dtype":["I8"])"), 0, "a.dtype: expected a string, found an array"},
      {"shape string", one(R"("shape":"1")"), 0, "a.shape: expected an array, found a string"},
      {"shape of strings", one(R"("shape":["1"])"), 0,
       "a.shape: expected unsigned integers, found a string"},
      {"negative", one(shape + "[-2,3]"), 12,
       "a.shape: expected unsigned integers, found a negative"},
      {"fraction", one(shape + "[2.0,3]"), 12, "found a number that is not an unsigned integer"},
      {"2^64", one(shape + "[18446744073709551616]"), 12, "not an unsigned integer"},
      {"nested array", one(shape + "[[2,3]]"), 12,
       "a.shape: expected unsigned integers, found an array"},
      {"deep nesting", one("\"shape\":" + std::string(1 << 20, '[')), 0, "found an array"},
      {"rank", one(shape + "[1,1,1,1,1,1,1,1,6]"), 12, "a.shape: expected at most 8 numbers"},
      {"zero dimension", one(shape + "[0,3]" + offsets + "[0,0]"), 0,
       "a.shape: expected dimensions"},
      {"product overflows", one(shape + "[4294967296,4294967296,2]" + offsets + "[0,12]"), 12,
       "a.shape: expected dimensions that fit into 12 bytes"},
      {"product wraps to the size", one(shape + "[9223372036854775814]" + offsets + "[0,12]"), 12,
       "a.shape: expected dimensions"},
      {"dimension too large", one(shape + "[2,4]" + offsets + "[0,12]"), 12,
       "a.shape: expected dim"},
      {"shape smaller than bytes", one(shape + "[2,2]" + offsets + "[0,12]"), 12,
       "a.data_offsets: expected 8 bytes for BF16 [2, 2], found 12"},
      {"offsets reversed", one(shape + "[2,3]" + offsets + "[12,0]"), 12,
       "a.data_offsets: expected a begin and an end within 12 bytes of data, found [12, 0]"},
      {"one offset", one(shape + "[2,3]" + offsets + "[12]"), 12, "found [12]"},
      {"three offsets", one(shape + "[2,3]" + offsets + "[0,12,12]"), 12, "found [0, 12, 12]"},
      {"end past the file", one(shape + "[2,3]" + offsets + "[1,13]"), 12, "found [1, 13]"},
      {"end far past the file", one(shape + "[2,3]" + offsets + "[0,18446744073709551615]"), 12,
       "a.data_offsets: expected a begin and an end"},
      {"gap first", one(shape + "[2]" + offsets + "[2,6]"), 6,
       "a.data_offsets: expected begin 0, right after the header, found 2"},
      {"gap between",
       R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"I8","shape":[4],"data_offsets":[5,9]}})",
       9, "b.data_offsets: expected begin 4, right after a, found 5: bytes of no tensor"},
      {"overlap",
       R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"I8","shape":[4],"data_offsets":[3,7]}})",
       7, "b.data_offsets: expected begin 4, right after a, found 3: they overlap"},
      {"same bytes twice",
       R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})",
       4, "they overlap"},
      {"a byte left over", kTwo, 21, "file length: expected 20 bytes of tensors, found 21"},
      {"data without tensors", "{}", 1, "file length: expected 0 bytes of tensors, found 1"},
      {"a byte missing", kTwo, 19, "b.data_offsets: expected a begin and an end within 19 bytes"},
  };
}

TEST(Safetensors, RefusesEveryMutationAndNamesIt) {
  ASSERT_EQ(refusal(file_of(kTwo, 20)), "accepted");
  for (const auto& m : mutations()) {
    EXPECT_THAT(refusal(file_of(m.header, m.data_bytes)), HasSubstr(m.expected)) << m.name;
  }
}

TEST(Safetensors, RefusesALyingHeaderLength) {
  EXPECT_THAT(refusal(file_of(kTwo, 20, -1)), HasSubstr("error at byte"));
  EXPECT_THAT(refusal(file_of(kTwo, 20, 1)), HasSubstr("x.safetensors: header: "));
  EXPECT_THAT(refusal(file_of(kTwo, 20, 21)), HasSubstr("header length: expected 2 to"));
  auto huge = file_of(kTwo, 20);
  std::fill(huge.begin(), huge.begin() + 8, std::byte{0xff});
  EXPECT_THAT(refusal(huge), HasSubstr("found 18446744073709551615"));
}

TEST(Safetensors, RefusesTheFileCutAnywhere) {
  const auto whole = file_of(kTwo, 20);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_NE(refusal(cut), "accepted") << n << " bytes";
  }
}

// Whatever one changed byte does, the views stay inside the file.
TEST(Safetensors, SurvivesEveryByteChanged) {
  const auto whole = file_of(kTwo, 20);
  for (std::size_t i = 0; i + 20 < whole.size(); ++i) {
    for (const int value : {0, 1, 9, 0x20, 0x22, 0x30, 0x39, 0x5d, 0x7b, 0x80, 0xff}) {
      auto changed = whole;
      changed[i] = static_cast<std::byte>(value);
      const auto parsed = Safetensors::from_bytes(changed, "x.safetensors");
      if (!parsed.has_value()) continue;
      for (const auto& [name, view] : parsed->tensors()) {
        EXPECT_GE(view.bytes.data(), changed.data() + 8);
        EXPECT_LE(view.bytes.data() + view.bytes.size(), changed.data() + changed.size());
      }
    }
  }
}

}  // namespace
}  // namespace kipp
