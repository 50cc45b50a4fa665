// The container's structure alone: small files made by hand, no keys or names that kipp knows.
#include "model/gguf_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/editable_gguf.h"

namespace kipp {
namespace {

using test::EditableGguf;
using test::raw;
using test::raw_array;
using test::raw_text;
using ::testing::HasSubstr;

constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;

EditableGguf small_file() {
  EditableGguf gguf;
  gguf.values = {
      {"a.u8", 0, raw(std::uint8_t{200})},
      {"a.i8", 1, raw(std::int8_t{-3})},
      {"a.u16", 2, raw(std::uint16_t{60000})},
      {"a.i16", 3, raw(std::int16_t{-300})},
      {"a.u32", 4, raw(std::uint32_t{4000000000})},
      {"a.i32", 5, raw(std::int32_t{-70000})},
      {"a.f32", 6, raw(1.5f)},
      {"a.bool", 7, raw(std::uint8_t{1})},
      {"a.text", 8, raw_text("some text")},
      {"a.u64", 10, raw(std::uint64_t{1} << 40)},
      {"a.i64", 11, raw(std::int64_t{-5})},
      {"a.f64", 12, raw(-0.25)},
      {"a.texts", 9, raw_array(8, 3, raw_text("x") + raw_text("") + raw_text("long one"))},
      {"a.numbers", 9, raw_array(5, 2, raw(std::int32_t{7}) + raw(std::int32_t{-8}))},
  };
  gguf.tensors = {{"t.one", {64}, 0, 0}, {"t.two", {32, 3}, 30, 256}};
  return gguf;
}

Result<Gguf> read(const test::Bytes& file) { return read_gguf(file); }

TEST(GgufReader, ReadsEveryTypeOfValue) {
  const test::Bytes file = small_file().bytes();
  const auto gguf = read(file);
  ASSERT_TRUE(gguf) << gguf.error().message;
  std::vector<std::string> found;
  for (const GgufValue& value : gguf->values) {
    found.push_back(std::string(value.key) + "=" + describe(value));
  }
  EXPECT_THAT(found, ::testing::ElementsAre(
                         "a.u8=u8 200", "a.i8=i8 -3", "a.u16=u16 60000", "a.i16=i16 -300",
                         "a.u32=u32 4000000000", "a.i32=i32 -70000", "a.f32=f32 1.5",
                         "a.bool=bool true", "a.text=string \"some text\"",
                         "a.u64=u64 1099511627776", "a.i64=i64 -5", "a.f64=f64 -0.25",
                         "a.texts=array of 3 string values", "a.numbers=array of 2 i32 values"));
  const GgufValue* texts = gguf->find("a.texts");
  ASSERT_NE(texts, nullptr);
  EXPECT_EQ(texts->element_text(0), "x");
  EXPECT_EQ(texts->element_text(1), "");
  EXPECT_EQ(texts->element_text(2), "long one");
  EXPECT_EQ(gguf->find("a.numbers")->raw.size(), 8u);
  EXPECT_EQ(gguf->find("a.missing"), nullptr);
}

TEST(GgufReader, ReadsTheTensorTable) {
  const test::Bytes file = small_file().bytes();
  const auto gguf = read(file);
  ASSERT_TRUE(gguf) << gguf.error().message;
  ASSERT_EQ(gguf->tensors.size(), 2u);
  const GgufTensor& two = gguf->tensors[1];
  EXPECT_EQ(two.name, "t.two");
  EXPECT_EQ(two.n_dims, 2u);
  EXPECT_EQ(two.dims[0], 32u);
  EXPECT_EQ(two.dims[1], 3u);
  EXPECT_EQ(two.type, 30u);
  EXPECT_EQ(two.offset, 256u);
  EXPECT_EQ(gguf->table_end, small_file().boundaries().back());
}

struct Spoiled {
  const char* name;
  std::function<void(EditableGguf&)> spoil;
  std::vector<const char*> says;
};

class GgufReaderRefuses : public ::testing::TestWithParam<Spoiled> {};

TEST_P(GgufReaderRefuses, SaysWhatItExpectedAndFound) {
  EditableGguf gguf = small_file();
  GetParam().spoil(gguf);
  const test::Bytes file = gguf.bytes();
  const auto result = read(file);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::refused);
  for (const char* part : GetParam().says) EXPECT_THAT(result.error().message, HasSubstr(part));
}

const Spoiled kSpoiled[] = {
    {"Magic", [](auto& g) { g.magic = "GGML"; }, {"magic", "expected \"GGUF\"", "found \"GGML\""}},
    {"Version1", [](auto& g) { g.version = 1; }, {"version", "expected 3", "found 1"}},
    {"Version2", [](auto& g) { g.version = 2; }, {"version", "expected 3", "found 2"}},
    {"Version4", [](auto& g) { g.version = 4; }, {"version", "expected 3", "found 4"}},
    {"BigEndian", [](auto& g) { g.version = 0x03000000; }, {"version", "big-endian"}},
    {"NoTensors", [](auto& g) { g.n_tensors = 0; }, {"tensor count", "found 0"}},
    {"TensorCountTwoTo63",
     [](auto& g) { g.n_tensors = kHuge; },
     {"tensor count", "expected 1 to 1024", "found 9223372036854775808"}},
    {"TooManyTensors", [](auto& g) { g.n_tensors = 1025; }, {"tensor count", "found 1025"}},
    {"NoKeys", [](auto& g) { g.n_values = 0; }, {"metadata count", "found 0"}},
    {"KeyCountTwoTo63",
     [](auto& g) { g.n_values = kHuge; },
     {"metadata count", "expected 1 to 64", "found 9223372036854775808"}},
    {"TooManyKeys", [](auto& g) { g.n_values = 65; }, {"metadata count", "found 65"}},
    {"EmptyKey",
     [](auto& g) { g.values[2].key = ""; },
     {"metadata key 2", "expected a name of 1 to 64 bytes", "found 0"}},
    {"LongKey",
     [](auto& g) { g.values[2].key = std::string(65, 'k'); },
     {"metadata key 2", "found 65"}},
    {"KeyWithCapital",
     [](auto& g) { g.values[0].key = "a.U8"; },
     {"metadata key 0", "expected", "found \"a.U8\""}},
    {"KeyNotUtf8",
     [](auto& g) { g.values[0].key = "a.\xff\xfe"; },
     {"metadata key 0", "expected", "found \"a.\\xff\\xfe\""}},
    {"KeyWithZeroByte",
     [](auto& g) { g.values[0].key = std::string("a\0b", 3); },
     {"metadata key 0", "found \"a\\x00b\""}},
    {"RepeatedKey",
     [](auto& g) { g.values[3].key = "a.u8"; },
     {"a.u8", "expected the key once", "key 3"}},
    {"UnknownType",
     [](auto& g) { g.values[4].type = 13; },
     {"a.u32", "expected a value type of 0 to 12", "found 13"}},
    {"AbsurdType", [](auto& g) { g.values[4].type = 0xffffffff; }, {"a.u32", "found 4294967295"}},
    {"BoolOfTwo",
     [](auto& g) { g.value("a.bool").bytes = "\x02"; },
     {"a.bool", "expected a bool of 0 or 1", "found 2"}},
    {"TextBeyondTheEnd",
     [](auto& g) { g.value("a.text").bytes = raw(std::uint64_t{1} << 32) + "some text"; },
     {"a.text", "expected 4294967296 bytes", "found"}},
    {"TextOfAllLengths",
     [](auto& g) { g.value("a.text").bytes = raw(~std::uint64_t{0}) + "some text"; },
     {"a.text", "expected 18446744073709551615 bytes"}},
    {"ArrayOfArrays",
     [](auto& g) { g.value("a.texts").bytes = raw_array(9, 1, raw_array(4, 0, "")); },
     {"a.texts", "expected an array of scalars or strings", "found an array of arrays"}},
    {"ArrayOfUnknown",
     [](auto& g) { g.value("a.texts").bytes = raw_array(77, 1, ""); },
     {"a.texts", "found 77"}},
    {"ArrayCountTwoTo63",
     [](auto& g) { g.value("a.texts").bytes = raw_array(8, kHuge, ""); },
     {"a.texts", "expected at most 151936 elements", "found 9223372036854775808"}},
    {"ArrayCountWrapsTimesWidth",
     [](auto& g) { g.value("a.numbers").bytes = raw_array(10, std::uint64_t{1} << 61, ""); },
     {"a.numbers", "expected at most 151936", "found 2305843009213693952"}},
    {"ArrayLongerThanTheFile",
     [](auto& g) { g.value("a.numbers").bytes = raw_array(5, 150000, ""); },
     {"a.numbers", "expected 600000 bytes", "found"}},
    {"EmptyTensorName",
     [](auto& g) { g.tensors[1].name = ""; },
     {"name of tensor 1", "expected a name of 1 to 64 bytes", "found 0"}},
    {"LongTensorName",
     [](auto& g) { g.tensors[1].name = std::string(65, 't'); },
     {"name of tensor 1", "found 65"}},
    {"OddTensorName",
     [](auto& g) { g.tensors[0].name = "t/one"; },
     {"name of tensor 0", "found \"t/one\""}},
    {"NoDimensions",
     [](auto& g) { g.tensors[0].dims.clear(); },
     {"tensor t.one", "expected 1 to 4 dimensions", "found 0"}},
    {"FiveDimensions",
     [](auto& g) {
       g.tensors[0].dims = {1, 1, 1, 1, 1};
     },
     {"t.one", "found 5"}},
    {"ZeroDimension",
     [](auto& g) { g.tensors[1].dims[1] = 0; },
     {"tensor t.two", "expected dimensions of at least 1", "found dimension 1 = 0"}},
    {"DimensionTwoTo63",
     [](auto& g) { g.tensors[0].dims[0] = kHuge; },
     {"t.one", "below 2^63", "found dimension 0 = 9223372036854775808"}},
    {"ProductWraps",
     [](auto& g) {
       g.tensors[1].dims = {(std::uint64_t{1} << 42) + 1, std::uint64_t{1} << 22};
     },
     {"t.two", "below 2^63", "found dimension 1 = 4194304"}},
};

INSTANTIATE_TEST_SUITE_P(Table, GgufReaderRefuses, ::testing::ValuesIn(kSpoiled),
                         [](const auto& tested) { return tested.param.name; });

// Each prefix lives in memory of its own size, so that a sanitizer sees a read past its end.
TEST(GgufReader, RefusesEveryPrefixOfTheHead) {
  const EditableGguf gguf = small_file();
  const test::Bytes whole = gguf.bytes();
  const std::size_t table_end = gguf.boundaries().back();
  for (std::size_t n = 0; n < table_end; ++n) {
    const test::Bytes prefix(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    const auto result = read(prefix);
    ASSERT_FALSE(result) << n;
    EXPECT_THAT(result.error().message, HasSubstr("expected")) << n;
    EXPECT_THAT(result.error().message, HasSubstr("before the end of the file")) << n;
  }
  const test::Bytes exact(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(table_end));
  EXPECT_TRUE(read(exact));
}

// The file of a public report: a key of length 0 ended another reader's process.
TEST(GgufReader, RefusesTheFileOf37Bytes) {
  const std::string file = std::string("GGUF") + raw(std::uint32_t{3}) + raw(std::uint64_t{1}) +
                           raw(std::uint64_t{1}) + raw(std::uint64_t{0}) + raw(std::uint32_t{7}) +
                           "\x01";
  ASSERT_EQ(file.size(), 37u);
  const auto result = read_gguf(std::as_bytes(std::span(file)));
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("found 0 bytes"));
}

TEST(GgufReader, QuotesWhatAFileCouldHide) {
  EXPECT_EQ(quote("plain"), "\"plain\"");
  EXPECT_EQ(quote("a\"\\\n\x1b"), "\"a\\x22\\x5c\\x0a\\x1b\"");
  EXPECT_EQ(quote(std::string(100, 'x')), "\"" + std::string(80, 'x') + "...\" (100 bytes)");
}

}  // namespace
}  // namespace kipp
