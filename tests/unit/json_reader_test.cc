// Text that two readers could understand differently is refused where it stands, and no text is
// slow or deep enough to hurt.
#include "tokenizer/json_reader.h"
#include "support/sanitized.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <ctime>

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;
using testing::StartsWith;

std::string problem(std::string_view text) {
  const auto json = read_json<Json>(text, 8);
  return json ? "none" : json.error().path + "|" + json.error().message;
}

TEST(JsonReader, BuildsTheSameTreeAsTheLibrary) {
  for (const char* text : {R"({"b": [1, {"a": null}, {}], "a": "é\ud83d\ude00\u0000", "": []})",
                           "[]", "{}", "-1", "18446744073709551615", "-9223372036854775808", "1e3",
                           "true", "null", "\"x\"", R"([[[[[[[[1]]]]]]]])"}) {
    const auto ordered = read_json<Json>(text, 8);
    ASSERT_TRUE(ordered) << text << ": " << ordered.error().message;
    EXPECT_EQ(ordered->dump(), Json::parse(text).dump());
    EXPECT_EQ(read_json<nlohmann::json>(text, 8)->dump(), nlohmann::json::parse(text).dump());
  }
}

// Whatever bytes: refused, or as the library reads them.
RC_GTEST_PROP(JsonReader, TakesNothingTheLibraryRefuses, ()) {
  static constexpr std::string_view kParts[] = {"{",     "}",     "[",  "]",    ",",    ":",
                                                "\"a\"", "\"b\"", "1",  "-0",   "1e9",  "null",
                                                "\"",    "\\u",   "d8", "\xC3", "\xA9", " "};
  std::string text;
  for (const auto i : *rc::gen::container<std::vector<std::size_t>>(
           rc::gen::inRange<std::size_t>(0, std::size(kParts)))) {
    text += kParts[i];
  }
  const auto read = read_json<Json>(text, 64);
  const Json library = Json::parse(text, nullptr, false);
  if (read) {
    RC_ASSERT(!library.is_discarded());
    RC_ASSERT(read->dump() == library.dump());
  } else if (!library.is_discarded()) {
    RC_ASSERT(read.error().message.find("found twice") != std::string::npos);
  }
}

TEST(JsonReader, SaysWhereAndWhat) {
  EXPECT_EQ(problem(R"({"a": [0, {"b": "x\ud83d"}]})"),
            "a[1].b|expected JSON, found an error at byte 25: half a surrogate pair");
  EXPECT_THAT(problem(R"({"m": [{"c": "\ude00 x"}]})"), StartsWith("m[0].c|"));
  EXPECT_THAT(problem(R"(["\ud83d\ud83d"])"), HasSubstr("half a surrogate pair"));
  EXPECT_EQ(problem("{\"a\": \"\xFF\"}"),
            "a|expected JSON, found an error at byte 8: bytes that are not UTF-8");
  EXPECT_EQ(problem(R"({"t": 1e999})"),
            "t|expected JSON, found an error at byte 11: a number beyond the range of a double");
  EXPECT_EQ(problem(R"({"t": NaN})"), "t|expected JSON, found an error at byte 7");
  EXPECT_THAT(problem(R"({"t": Infinity})"), StartsWith("t|expected JSON"));
  EXPECT_THAT(problem(R"({"t": -Infinity})"), StartsWith("t|expected JSON"));
  EXPECT_EQ(problem(R"({"a": {"b": 1, "c": 2, "\u0062": 3}})"),
            R"(a|"b": expected once, found twice)");
  EXPECT_THAT(problem("{\"a\n\": tru}"), StartsWith("|expected JSON"));
  EXPECT_THAT(problem(R"({"a b": tru})"), StartsWith("\"a b\"|expected JSON"));
  EXPECT_EQ(problem("[[[[[[[[[1]]]]]]]]]"), "|nesting: expected at most 8 levels, found more");
}

TEST(JsonReader, RefusesWhatIsNoJson) {
  for (const std::string_view text :
       {"", " ", "{:", "{", "}", "[1,]", "{\"a\":1,}", "{} x", "[] []", "{'a': 1}", "01", "+1",
        "// x\n1", "nul", "\"\t\"", "{\"a\" 1}", "\xEF\xBB"}) {
    EXPECT_THAT(problem(text), HasSubstr("expected JSON, found")) << text;
  }
  EXPECT_EQ(problem(std::string_view("{}\0{}", 5)), "|expected JSON, found a NUL at byte 2");
}

// Each of these is minutes' work, or a dead process, for a reader that is quadratic or recursive.
TEST(JsonReader, IsNeitherSlowNorRecursive) {
  const auto seconds_of = [](int n) {
    std::string fields = "{";
    for (int i = 0; i < n; ++i) {
      fields += fmt::format("{}\"some_field_{}\":0", i > 0 ? "," : "", i);
    }
    std::string objects;
    for (int i = 0; i < n; ++i) objects += "{\"a\":";
    const std::clock_t start = std::clock();
    const auto wide = read_json<Json>(fields + "}", 8);
    EXPECT_EQ(wide ? static_cast<int>(wide->size()) : 0, n);
    EXPECT_THAT(problem(fields + ",\"some_field_7\":0}"), HasSubstr("found twice"));
    EXPECT_THAT(problem(std::string(static_cast<std::size_t>(5 * n), '[')), HasSubstr("nesting"));
    EXPECT_THAT(problem(objects), HasSubstr("nesting"));
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  // In proportion, whatever the machine: what is quadratic takes 64 times as long.
  const double few = seconds_of(25'000);
  const double many = seconds_of(200'000);
  EXPECT_LT(many, 24 * few);
  if (!test::kSanitized) {
    EXPECT_LT(many, 3.0);
  }
}

TEST(InQuotes, CutsBetweenCharactersAndEscapes) {
  EXPECT_EQ(in_quotes("robot"), "\"robot\"");
  EXPECT_EQ(in_quotes("a\"\n"), R"("a\"\n")");
  EXPECT_EQ(in_quotes(std::string(39, 'x') + "é" + "y"), "\"" + std::string(39, 'x') + "...\"");
  EXPECT_EQ(in_quotes("\xFF"), "\"\uFFFD\"");
  EXPECT_EQ(path_name("top_p"), "top_p");
  EXPECT_EQ(path_name("a.b"), "\"a.b\"");
  EXPECT_EQ(path_name(""), "\"\"");
}

}  // namespace
}  // namespace kipp
