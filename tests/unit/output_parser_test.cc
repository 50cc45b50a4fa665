// Reasoning, tool calls and content taken apart: the same parts however the text was cut into
// pieces, and nothing of it lost but what belongs to tags.
#include "tokenizer/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "support/property.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Setting = OutputParser::Setting;
constexpr Setting kThinks{
    .starts_in_thinking = false, .splits_reasoning = true, .parses_tools = false};
constexpr Setting kInThinking{
    .starts_in_thinking = true, .splits_reasoning = true, .parses_tools = false};
constexpr Setting kTools{
    .starts_in_thinking = false, .splits_reasoning = true, .parses_tools = true};
constexpr Setting kPlain{};

struct Call {
  std::string name;
  std::string arguments;
  friend bool operator==(const Call&, const Call&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Call& call) {
    return out << call.name << "(" << call.arguments << ")";
  }
};

struct Parts {
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
  int complete = 0;
  friend bool operator==(const Parts&, const Parts&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Parts& parts) {
    out << "reasoning \"" << parts.reasoning << "\", content \"" << parts.content << "\"";
    for (const Call& call : parts.calls) out << ", " << call;
    return out << ", " << parts.complete << " complete";
  }
};

// As a client joins them, which is told when a call begins.
void add(const ParsedDelta& delta, Parts& parts) {
  parts.reasoning += delta.reasoning;
  parts.content += delta.content;
  for (const ParsedDelta::ToolPiece& piece : delta.tools) {
    const auto index = static_cast<std::size_t>(piece.index);
    EXPECT_EQ(piece.begins, index == parts.calls.size());
    EXPECT_EQ(piece.begins, !piece.name.empty());
    if (piece.begins) parts.calls.push_back({piece.name, {}});
    ASSERT_EQ(index, parts.calls.size() - 1) << "pieces of one call follow each other";
    parts.calls[index].arguments += piece.arguments;
  }
}

Parts parse(const Setting& setting, const std::vector<std::string>& pieces) {
  OutputParser parser(setting);
  Parts parts;
  for (const std::string& piece : pieces) add(parser.push(piece), parts);
  add(parser.finish(), parts);
  EXPECT_EQ(parser.announced_calls(), static_cast<int>(parts.calls.size()));
  parts.complete = parser.complete_calls();
  return parts;
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  for (const char c : text) out.emplace_back(1, c);
  return out;
}

// Of the whole text; and the same character by character.
Parts parse(const Setting& setting, const std::string& text) {
  const Parts whole = parse(setting, std::vector{text});
  EXPECT_EQ(parse(setting, characters(text)), whole) << text;
  return whole;
}

Parts just_content(std::string content) { return {{}, std::move(content), {}, 0}; }

TEST(OutputParser, SplitsReasoningAndTheNewlinesAtItsTags) {
  EXPECT_EQ(parse(kThinks, "<think>\nwhy\nnot\n</think>\n\nHi\n"),
            (Parts{"why\nnot", "Hi\n", {}, 0}));
  EXPECT_EQ(parse(kThinks, "<think></think>Hi"), (Parts{{}, "Hi", {}, 0}));
  EXPECT_EQ(parse(kThinks, "<think>\n\n\n</think>\n\n"), (Parts{}));
  EXPECT_EQ(parse(kThinks, "<think>a</thin></think></think>b"),
            (Parts{"a</thin>", "</think>b", {}, 0}));
  EXPECT_EQ(parse(kThinks, "<think>1<2 \n<</think>3"), (Parts{"1<2 \n<", "3", {}, 0}));
}

TEST(OutputParser, AThinkBlockIsTheFirstThingOrText) {
  for (const std::string text : {"\n<think>a</think>b", "a<think>b</think>c", "<thinking>",
                                 "</think>a", "<", "<thin", "\n\nHi\n"}) {
    EXPECT_EQ(parse(kThinks, text), just_content(text));
  }
  EXPECT_EQ(parse(kPlain, "<think>a</think>b"), just_content("<think>a</think>b"));
}

TEST(OutputParser, AnAnswerMayBeginInsideTheBlockOfThePrompt) {
  EXPECT_EQ(parse(kInThinking, "abc</think>\n\nanswer"), (Parts{"abc", "answer", {}, 0}));
  EXPECT_EQ(parse(kInThinking, "</think>answer"), (Parts{{}, "answer", {}, 0}));
  // The tag once more, as models write it that were not told.
  EXPECT_EQ(parse(kInThinking, "<think>\nabc</think>answer"), (Parts{"abc", "answer", {}, 0}));
  EXPECT_EQ(parse(kInThinking, "<thi</think>x"), (Parts{"<thi", "x", {}, 0}));
}

TEST(OutputParser, WhatIsCutInsideTheBlockIsReasoning) {
  EXPECT_EQ(parse(kThinks, "<think>\nhalf\n"), (Parts{"half", {}, {}, 0}));
  EXPECT_EQ(parse(kInThinking, "half\n</thi"), (Parts{"half\n</thi", {}, {}, 0}));
  OutputParser parser(kInThinking);
  EXPECT_TRUE(parser.in_reasoning());
  parser.push("half</think");
  EXPECT_TRUE(parser.in_reasoning());
  parser.push(">");
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_TRUE(parser.has_reasoning());
  EXPECT_FALSE(OutputParser(kThinks).in_reasoning());
}

TEST(OutputParser, WaitsForNoMoreThanATag) {
  OutputParser parser(kTools);
  EXPECT_EQ(parser.push("a < b").content, "a < b");
  EXPECT_EQ(parser.push("\n").content, "");
  EXPECT_EQ(parser.push("<tool").content, "");
  EXPECT_EQ(parser.push("s>").content, "\n<tools>");
  OutputParser thinker(kInThinking);
  EXPECT_EQ(thinker.push("a\n\n</th").reasoning, "a");
  EXPECT_EQ(thinker.push("e").reasoning, "\n\n</the");
}

TEST(OutputParser, ACallIsAnnouncedWhenItsArgumentsBegin) {
  OutputParser parser(kTools);
  EXPECT_TRUE(parser.push("<tool_call>\n{\"name\": \"get\", \"arguments\": ").empty());
  ParsedDelta delta = parser.push("{");
  ASSERT_EQ(delta.tools.size(), 1u);
  EXPECT_TRUE(delta.tools[0].begins);
  EXPECT_EQ(delta.tools[0].name, "get");
  EXPECT_EQ(delta.tools[0].arguments, "{");
  delta = parser.push("\"city\": \"Par");
  ASSERT_EQ(delta.tools.size(), 1u);
  EXPECT_FALSE(delta.tools[0].begins);
  EXPECT_EQ(delta.tools[0].arguments, "\"city\": \"Par");
  EXPECT_EQ(parser.push("is\"}}").tools[0].arguments, "is\"}");
  EXPECT_EQ(parser.complete_calls(), 0);
  EXPECT_TRUE(parser.push("\n</tool_call>").empty());
  EXPECT_EQ(parser.complete_calls(), 1);
}

TEST(OutputParser, TakesCallsOutOfTheContent) {
  const std::string one = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const std::string two = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
  const Call f{"f", "{\"a\": 1}"};
  const Call g{"g", "{}"};
  EXPECT_EQ(parse(kTools, one + "\n" + two), (Parts{{}, {}, {f, g}, 2}));
  EXPECT_EQ(parse(kTools, one + two + " \n"), (Parts{{}, {}, {f, g}, 2}));
  EXPECT_EQ(parse(kTools, "Look.\n\n" + one), (Parts{{}, "Look.\n", {f}, 1}));
  EXPECT_EQ(parse(kTools, "Look. " + one + "\nAnd\n" + two + "\nDone"),
            (Parts{{}, "Look. \nAnd\nDone", {f, g}, 2}));
  EXPECT_EQ(parse(kTools, "<think>\nhm " + one + "\n</think>\n\n" + two),
            (Parts{"hm " + one, {}, {g}, 1}));
  EXPECT_EQ(parse(kThinks, one), just_content(one));
}

// One call of that body.
Parts call(const std::string& body) {
  return parse(kTools, "<tool_call>\n" + body + "\n</tool_call>");
}
Parts complete(Call call) { return {{}, {}, {std::move(call)}, 1}; }

TEST(OutputParser, ACallWithoutArgumentsHasNone) {
  const Parts expected = complete({"f", "{}"});
  EXPECT_EQ(call(R"({"name": "f"})"), expected);
  EXPECT_EQ(call(R"({"name": "f", "arguments": {}})"), expected);
  EXPECT_EQ(call(R"({"name": "f", "arguments": null})"), expected);
  EXPECT_EQ(call(R"({"name": "f", "arguments": ""})"), expected);
}

TEST(OutputParser, ArgumentsPassAsTheyAreWritten) {
  const auto passes = [](const std::string& arguments) {
    EXPECT_EQ(call(R"({"name": "run", "arguments": )" + arguments + "}"),
              complete({"run", arguments}));
  };
  passes(R"({"cmd": "mkdir -p test/{test1,test2"})");
  passes(R"({"a": "}</tool_call>", "b": "\"}", "c": "\\"})");
  passes(R"({ "n" : [ 1, {"x": [[]]}, "]" ],
    "€": "\u20ac 🌊" })");
}

TEST(OutputParser, MembersComeInAnyOrderAndTheFirstOfANameCounts) {
  EXPECT_EQ(call(R"({"arguments": {"a": "}"}, "name": "f"})"), complete({"f", R"({"a": "}"})"}));
  EXPECT_EQ(call(R"({"id": [1, "}"], "name": "f", "x": -1.5e3, "arguments": {}, "y": true})"),
            complete({"f", "{}"}));
  EXPECT_EQ(call(R"({"name": "f", "name": "g", "arguments": {}, "arguments": {"a": 1}})"),
            complete({"f", "{}"}));
  EXPECT_EQ(call(R"({"name": "\u0066\n", "arguments": {}})"), complete({"f\n", "{}"}));
}

TEST(OutputParser, ArgumentsInAStringAreTakenOut) {
  EXPECT_EQ(call(R"({"name": "f", "arguments": "{\"a\": \"\\n\ud83c\udf0a\"}"})"),
            complete({"f", R"({"a": "\n🌊"})"}));
}

TEST(OutputParser, WhatIsNoObjectIsPassedOnAndNotComplete) {
  const auto passes = [](const std::string& written, const std::string& passed) {
    EXPECT_EQ(call(R"({"name": "f", "arguments": )" + written + "}"),
              (Parts{{}, {}, {{"f", passed}}, 0}));
  };
  passes("5", "5");
  passes("[1]", "[1]");
  passes(R"({"a": })", R"({"a": })");
  passes(R"({"a": 1])", R"({"a": 1])");
  passes(R"("no JSON")", "no JSON");
  passes(R"("\ud83d")", R"("\ud83d")");
}

TEST(OutputParser, ABraceTooFewOrTooManyIsForgiven) {
  EXPECT_EQ(call(R"({"name": "f", "arguments": {"a": 1})"), complete({"f", R"({"a": 1})"}));
  EXPECT_EQ(call(R"({"name": "f", "arguments": {"a": 1}}})"), complete({"f", R"({"a": 1})"}));
}

TEST(OutputParser, WhatProvesToBeNoCallIsContent) {
  for (const std::string text :
       {"<tool_call>\nnot JSON</tool_call>", "\n<tool_call>[1]", "<tool_call>{}</tool_call>",
        "a\n<tool_call>\n{\"name\": 5}</tool_call>", "<tool_call>{\"name\": \"\"}",
        "<tool_call>{\"arguments\": {\"a\": 1}}\n</tool_call>", "<tool_call></tool_call>",
        "<tool_call>{\"name\" \"f\"}", "<tool_call>{\"name\": \"\\ud83d\"}",
        "<tool_call>{\"name\": \"f\"</tool_call>", "a\n<tool_", "a\n"}) {
    EXPECT_EQ(parse(kTools, text), just_content(text));
  }
  const std::string good = "<tool_call>{\"name\": \"f\"}</tool_call>";
  EXPECT_EQ(parse(kTools, "<tool_call>no\n" + good),
            (Parts{{}, "<tool_call>no", {{"f", "{}"}}, 1}));
  EXPECT_EQ(parse(kTools, good + "\n<tool_call>no"),
            (Parts{{}, "\n<tool_call>no", {{"f", "{}"}}, 1}));
  EXPECT_EQ(parse(kTools, "<tool_call><tool_call>" + good),
            (Parts{{}, "<tool_call><tool_call>", {{"f", "{}"}}, 1}));
}

TEST(OutputParser, WhatFollowsABrokenCallIsContent) {
  const std::string broken = "<tool_call>{\"name\": \"f\", \"arguments\": {}";
  EXPECT_EQ(parse(kTools, broken + "} Hello"), (Parts{{}, "Hello", {{"f", "{}"}}, 0}));
  EXPECT_EQ(parse(kTools, broken + " oops"), (Parts{{}, "oops", {{"f", "{}"}}, 0}));
  EXPECT_EQ(parse(kTools, broken + "}</tools>"), (Parts{{}, "</tools>", {{"f", "{}"}}, 0}));
  EXPECT_EQ(parse(kTools, broken + "}\n<tool_call>{\"name\": \"g\"}</tool_call>"),
            (Parts{{}, {}, {{"f", "{}"}, {"g", "{}"}}, 1}));
}

TEST(OutputParser, ACallThatIsCutIsNeverComplete) {
  const std::string text =
      "Hm.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}\n</tool_call>";
  const std::size_t known = text.find("{\"a\"") + 1;
  for (std::size_t n = 0; n < text.size(); ++n) {
    const Parts parts = parse(kTools, text.substr(0, n));
    EXPECT_EQ(parts.complete, 0) << n;
    if (n < known) {
      EXPECT_EQ(parts, just_content(text.substr(0, n)));
    } else {
      EXPECT_EQ(parts.content, "Hm.");
      const std::string arguments =
          text.substr(known - 1, std::min(n - known + 1, std::size_t{10}));
      EXPECT_THAT(parts.calls, ElementsAre(Call{"f", arguments}));
    }
  }
}

// What might make a scanner look back; minutes where one does.
TEST(OutputParser, NothingMakesItSlow) {
  for (const std::string unit : {"<tool_call>", "<tool_call>{\"", "\n", "</think", "<", "\n<tool",
                                 "<tool_call>{\"a\":[{", "\\\"", "{\"name\":"}) {
    std::string text = "<tool_call>{\"x\": \"";
    while (text.size() < 300'000) text += unit;
    for (const Setting& setting : {kInThinking, kTools}) {
      const Parts parts = parse(setting, std::vector{text});
      EXPECT_THAT(parts.calls, IsEmpty());
      EXPECT_EQ(parts.complete, 0);
    }
  }
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}

TEST(OutputParser, PartsDependOnTheTextAlone) {
  test::property(4000, [] {
    const Setting setting{.starts_in_thinking = *rc::gen::arbitrary<bool>(),
                          .splits_reasoning = *rc::gen::arbitrary<bool>(),
                          .parses_tools = *rc::gen::arbitrary<bool>()};
    const auto words = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
        "<think>", "</think>", "<tool_call>", "</tool_call>", "{\"name\": \"f\"", ", ",
        "\"arguments\": ", "{\"a\": \"}\"}", "{", "}", "\"", "\\", "\n", " ", "word", "<", ":",
        "null", "🌊", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"));
    const std::string text = joined(words);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const auto n = *test::among<std::size_t>(1, 12);
      pieces.push_back(text.substr(at, n));
      at += pieces.back().size();
    }
    const Parts parts = parse(setting, std::vector{text});
    RC_ASSERT(parse(setting, pieces) == parts);
    RC_ASSERT(parts.complete <= static_cast<int>(parts.calls.size()));
    if (parts.calls.empty()) {
      // Only think tags and the newlines at them are missing.
      std::string_view rest = text;
      const auto skip = [&](std::string_view tag) {
        if (rest.starts_with(tag)) rest.remove_prefix(tag.size());
      };
      const auto skip_newlines = [&] {
        while (rest.starts_with('\n')) rest.remove_prefix(1);
      };
      if (setting.starts_in_thinking || (setting.splits_reasoning && rest.starts_with("<think>"))) {
        skip("<think>");
        skip_newlines();
        RC_ASSERT(rest.starts_with(parts.reasoning));
        rest.remove_prefix(parts.reasoning.size());
        skip_newlines();
        skip("</think>");
        skip_newlines();
      }
      RC_ASSERT(rest == parts.content);
    }
  });
}

TEST(OutputParser, FindsWhatWasWritten) {
  test::property(2000, [] {
    const auto word = rc::gen::element<std::string>("a", "b c", "{", "}", "<", "🌊", "1\n2");
    const auto prose = rc::gen::map(rc::gen::container<std::vector<std::string>>(word), joined);
    const auto value = rc::gen::element<std::string>(
        "{}", R"({"a": 1})", R"({"x": "}{\"<tool_call>"})", "{\"y\": [\"\\\\\", {}]}");
    Parts expected;
    std::string text;
    if (*rc::gen::arbitrary<bool>()) {
      expected.reasoning = *prose;
      text = "<think>\n" + expected.reasoning + "\n</think>\n\n";
    }
    const std::string before = *prose;
    expected.content = before;
    text += before;
    for (int n = *test::among(0, 4); n > 0; --n) {
      const Call call{*rc::gen::element<std::string>("f", "get_weather"), *value};
      text += "\n<tool_call>\n{\"name\": \"" + call.name + "\", \"arguments\": " + call.arguments +
              "}\n</tool_call>";
      expected.calls.push_back(call);
      ++expected.complete;
    }
    RC_ASSERT(parse(kTools, characters(text)) == expected);
  });
}

}  // namespace
}  // namespace kipp
