// Expected texts are what CPython 3.11 prints; tests/python/test_chat_templates.py compares many
// more.
#include "tokenizer/python_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;

std::string written(const std::string& json) {
  std::string out;
  EXPECT_TRUE(append_python_json(Json::parse(json), out).has_value());
  return out;
}

TEST(PythonJson, SeparatesAndKeepsKeyOrder) {
  EXPECT_EQ(written(R"({"b":[1,2,{}],"a":{"x":null,"w":true,"v":false},"c":[]})"),
            R"({"b": [1, 2, {}], "a": {"x": null, "w": true, "v": false}, "c": []})");
  // As in a Python dict: the last value, in the first place.
  EXPECT_EQ(written(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
}

TEST(PythonJson, EscapesOnlyWhatJsonMust) {
  EXPECT_EQ(written(R"("\"\\\/\b\f\n\r\t\u0001\u001f\u007f\u2028ü</script>&'")"),
            "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\u2028ü</script>&'\"");
}

TEST(PythonJson, WritesNumbersAsPythonDoes) {
  EXPECT_EQ(written("[0, -0, -1, 18446744073709551615, -9223372036854775808]"),
            "[0, 0, -1, 18446744073709551615, -9223372036854775808]");
  EXPECT_EQ(
      written("[0.0, -0.0, 1.0, 1e5, 0.1, 1e15, 1e16, 1.5e16, 123456789012345.6]"),
      "[0.0, -0.0, 1.0, 100000.0, 0.1, 1000000000000000.0, 1e+16, 1.5e+16, 123456789012345.6]");
  EXPECT_EQ(written("[0.0001, 0.00001, 1.25e-7, 5e-324, 1.7976931348623157e308]"),
            "[0.0001, 1e-05, 1.25e-07, 5e-324, 1.7976931348623157e+308]");
  EXPECT_EQ(python_float(std::numeric_limits<double>::infinity()), "Infinity");
  EXPECT_EQ(python_float(-std::numeric_limits<double>::infinity()), "-Infinity");
  EXPECT_EQ(python_float(std::numeric_limits<double>::quiet_NaN()), "NaN");
}

TEST(PythonJson, RefusesMoreThanTheDepthLimit) {
  Json value = Json::array();
  for (int depth = 1; depth < kMaxJsonDepth; ++depth) value = Json::array({std::move(value)});
  std::string out;
  EXPECT_TRUE(append_python_json(value, out).has_value());
  value = Json::array({std::move(value)});
  EXPECT_FALSE(append_python_json(value, out).has_value());
}

}  // namespace
}  // namespace kipp
