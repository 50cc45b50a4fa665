// Text that two readers could understand differently is refused, and so is every field that is not
// as expected.
#include "convert/strict_json.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace kipp {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

std::string problem(std::string_view text) {
  const auto parsed = parse_strict_json(text, "x.json");
  return parsed ? "none" : parsed.error().message;
}

TEST(StrictJson, ParsesOrdinaryText) {
  EXPECT_EQ(parse_strict_json(R"({"a": [1, {"b": null}, {"b": 2}], "c": "é"})", "x").value(),
            Json::parse(R"({"a": [1, {"b": null}, {"b": 2}], "c": "é"})"));
}

TEST(StrictJson, RefusesWhatTwoReadersCouldReadDifferently) {
  EXPECT_THAT(problem(R"({"a": 1, "a": 1})"), HasSubstr("x.json: \"a\": expected once"));
  EXPECT_THAT(problem(R"({"b": {"c": 1, "a": {}, "c": 2}})"), HasSubstr("\"c\": expected once"));
  EXPECT_THAT(problem(R"({"a": 1, "\u0061": 2})"), HasSubstr("expected once, found twice"));
  EXPECT_THAT(problem(std::string("{}\0{}", 5)), HasSubstr("a NUL at byte 2"));
  EXPECT_THAT(problem("{} x"), HasSubstr("error at byte 4"));
  EXPECT_THAT(problem(""), HasSubstr("error at byte 1"));
  EXPECT_THAT(problem("{\"a\": 1"), HasSubstr("error at byte"));
  EXPECT_THAT(problem("\"\xff\""), HasSubstr("error at byte"));
  EXPECT_THAT(problem("[1e999]"), HasSubstr("expected JSON"));
}

TEST(StrictJson, BoundsTheDepth) {
  EXPECT_EQ(problem(std::string(16, '[') + std::string(16, ']')), "none");
  EXPECT_THAT(problem(std::string(18, '[') + std::string(18, ']')), HasSubstr("nesting"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(problem(objects + "1" + std::string(100'000, '}')), HasSubstr("nesting"));
  EXPECT_NE(problem(std::string(1 << 20, '[')), "none");
}

TEST(StrictJson, ReadsFilesUpToALimit) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "kipp_strict.json";
  std::ofstream(path) << "{\"a\": 1}";
  EXPECT_EQ(read_strict_json(path, 8).value()["a"], 1);
  EXPECT_EQ(read_strict_json(path, 7).error().message,
            "kipp_strict.json: expected at most 7 bytes, found 8");
  std::filesystem::remove(path);
  EXPECT_EQ(read_strict_json(path, 8).error().code, ErrorCode::io);
}

TEST(StrictJson, ExpectFieldsNamesTheFirstDifference) {
  const Json expected{{"n", 1}, {"s", "x"}, {"list", Json::array({1, 2})}, {"any", 0}};
  const auto found = [&](const char* text) {
    const auto checked = expect_fields(Json::parse(text), expected, "x.json", {"any"}, {"s"});
    return checked ? "none" : checked.error().message;
  };
  EXPECT_EQ(found(R"({"n": 1, "s": "x", "list": [1, 2], "any": -7})"), "none");
  EXPECT_EQ(found(R"({"n": 1.0, "list": [1, 2], "any": -7})"), "none");
  EXPECT_EQ(found(R"({"n": 2, "s": "x", "list": [1, 2], "any": -7})"),
            "x.json: n: expected 1, found 2");
  EXPECT_EQ(found(R"({"n": true, "list": [1, 2], "any": -7})"),
            "x.json: n: expected 1, found true");
  EXPECT_EQ(found(R"({"list": [1, 2], "any": -7})"), "x.json: n: expected 1, found nothing");
  EXPECT_EQ(found(R"({"n": 1, "list": [2, 1], "any": -7})"),
            "x.json: list: expected [1,2], found [2,1]");
  EXPECT_EQ(found(R"({"n": 1, "list": [1, 2], "any": "0"})"),
            "x.json: any: expected 0, found \"0\"");
  EXPECT_EQ(found(R"({"n": 1, "list": [1, 2], "any": -7, "more": {}})"),
            "x.json: \"more\": expected no such field, found {}");
  EXPECT_EQ(found("[]"), "x.json: expected an object, found []");
}

TEST(StrictJson, ShowsValuesShortAndPrintable) {
  EXPECT_EQ(shown(Json("a\x1b[2Jé")), R"("a\u001b[2J\u00e9")");
  EXPECT_LT(shown(Json(std::string(5000, 'x'))).size(), 110u);
}

}  // namespace
}  // namespace kipp
