// What a client may send as a message, and the sentence it gets for everything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tokenizer/chat_template.h"

namespace kipp {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ChatMessage parsed(const std::string& json) {
  auto message = parse_chat_message(Json::parse(json), 2);
  EXPECT_TRUE(message.has_value()) << json << ": " << message.error().message;
  return message.value_or(ChatMessage{});
}

TEST(ChatMessage, TakesContentAsStringNullNothingOrTextParts) {
  EXPECT_EQ(parsed(R"({"role": "user", "content": "hi"})").content, "hi");
  EXPECT_EQ(parsed(R"({"role": "assistant", "content": ""})").content, "");
  EXPECT_EQ(parsed(R"({"role": "assistant", "content": null})").content, std::nullopt);
  EXPECT_EQ(parsed(R"({"role": "assistant"})").content, std::nullopt);
  for (const std::string role : {"system", "user", "assistant", "tool"}) {
    const std::string parts = R"([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}])";
    EXPECT_EQ(parsed(R"({"role": ")" + role + R"(", "content": )" + parts + "}").content, "AB");
  }
  EXPECT_EQ(parsed(R"({"role": "user", "content": []})").content, "");
}

TEST(ChatMessage, TakesToolCallsWithAndWithoutTheWrapper) {
  const ChatMessage message = parsed(R"({"role": "assistant", "content": null, "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"b\":1,  \"a\":2}"}},
      {"name": "g", "arguments": {"b": 1, "a": 2}}]})");
  ASSERT_EQ(message.tool_calls.size(), 2u);
  EXPECT_EQ(message.tool_calls[0].name, "f");
  EXPECT_EQ(message.tool_calls[0].arguments, "{\"b\":1,  \"a\":2}");
  EXPECT_EQ(message.tool_calls[1].arguments.dump(), R"({"b":1,"a":2})");
}

TEST(ChatMessage, TakesARepliedMessageAsClientsSendItBack) {
  const ChatMessage message = parsed(R"({"role": "assistant", "content": "A", "refusal": null,
      "annotations": [], "audio": null, "function_call": null, "tool_calls": null,
      "reasoning_content": "why"})");
  EXPECT_EQ(message.reasoning_content, "why");
  EXPECT_TRUE(message.tool_calls.empty());
  EXPECT_EQ(
      parsed(R"({"role": "tool", "tool_call_id": "c1", "name": "f", "content": "x"})").content,
      "x");
}

TEST(ChatMessage, RefusesEverythingElseByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("hi")", "messages[2]: expected an object, found string"},
      {R"(null)", "messages[2]: expected an object, found null"},
      {R"({"content": "x"})", "messages[2].role: missing"},
      {R"({"role": 1})", "messages[2].role: expected a string, found number"},
      {R"({"role": null})", "messages[2].role: expected a string, found null"},
      {R"({"role": "robot", "content": "x"})",
       "messages[2].role: expected system, user, assistant or tool, found \"robot\""},
      {R"({"role": "developer", "content": "x"})", "messages[2].role:"},
      {R"({"role": "user", "content": 5})",
       "messages[2].content: expected a string, null or a list of text parts, found number"},
      {R"({"role": "user", "content": {"type": "text"}})", "messages[2].content:"},
      {R"({"role": "user", "content": ["x"]})", "messages[2].content[0]: expected an object"},
      {R"({"role": "user", "content": [{"text": "x"}]})",
       "messages[2].content[0].type: expected \"text\", found nothing"},
      {R"({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]})",
       "messages[2].content[1].type: expected \"text\", the only supported part, found "
       "\"image_url\""},
      {R"({"role": "user", "content": [{"type": "text"}]})",
       "messages[2].content[0].text: missing"},
      {R"({"role": "user", "content": [{"type": "text", "text": 1}]})",
       "messages[2].content[0].text: expected a string"},
      {R"({"role": "user", "content": [{"type": "text", "text": "", "cache_control": 1}]})",
       "messages[2].content[0]: unsupported field \"cache_control\""},
      {R"({"role": "user", "content": "x", "reasoning_content": "y"})",
       "messages[2]: unsupported field \"reasoning_content\" for the role user"},
      {R"({"role": "assistant", "reasoning_content": []})", "messages[2].reasoning_content:"},
      {R"({"role": "user", "content": "x", "name": "Ann"})",
       "messages[2]: unsupported field \"name\" for the role user"},
      {R"({"role": "assistant", "refusal": "no"})", "messages[2]: unsupported field \"refusal\""},
      {R"({"role": "user", "content": "x", "tool_calls": []})", "messages[2]: unsupported field"},
      {R"({"role": "assistant", "tool_calls": {}})", "messages[2].tool_calls: expected a list"},
      {R"({"role": "assistant", "tool_calls": [1]})", "messages[2].tool_calls[0]: expected an"},
      {R"({"role": "assistant", "tool_calls": [{"function": "f"}]})",
       "messages[2].tool_calls[0].function: expected an object, found string"},
      {R"({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]})",
       "messages[2].tool_calls[0].function.name: missing"},
      {R"({"role": "assistant", "tool_calls": [{"name": "f"}]})",
       "messages[2].tool_calls[0].arguments: missing"},
      {R"({"role": "assistant", "tool_calls": [{"name": 1, "arguments": ""}]})",
       "messages[2].tool_calls[0].name: expected a string"},
      {R"({"role": "assistant", "tool_calls": [{"type": "custom", "name": "f", "arguments": ""}]})",
       "messages[2].tool_calls[0].type: expected \"function\""},
      {R"({"role": "assistant", "tool_calls": [{"name": "f", "arguments": "", "x": 1}]})",
       "messages[2].tool_calls[0]: unsupported field \"x\""},
      {R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "", "x": 1}}]})",
       "messages[2].tool_calls[0].function: unsupported field \"x\""},
  };
  for (const auto& [json, sentence] : cases) {
    const auto message = parse_chat_message(Json::parse(json), 2);
    ASSERT_FALSE(message.has_value()) << json;
    EXPECT_EQ(message.error().code, ErrorCode::invalid);
    EXPECT_THAT(message.error().message, StartsWith(sentence)) << json;
  }
}

TEST(ChatMessage, RefusesDeepArgumentsBeforeCopyingThem) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const Json json = Json::parse(
      R"({"role": "assistant", "tool_calls": [{"name": "f", "arguments": )" + deep + "}]}");
  const auto message = parse_chat_message(json, 2);
  ASSERT_FALSE(message.has_value());
  EXPECT_THAT(message.error().message, StartsWith("messages[2].tool_calls[0].arguments: expected"));
}

TEST(ChatMessage, QuotesLongStringsCutBetweenCharacters) {
  std::string role;
  for (int i = 0; i < 1000; ++i) role += "ü€";
  const auto message = parse_chat_message(Json{{"role", role}}, 0);
  ASSERT_FALSE(message.has_value());
  EXPECT_LT(message.error().message.size(), 140u);
  EXPECT_NO_THROW(Json(message.error().message).dump());  // still UTF-8
}

}  // namespace
}  // namespace kipp
