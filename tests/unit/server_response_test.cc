// Answers as clients of OpenAI's API read them, whole and streamed. That both agree in everything
// is server_stream_law_test's; here is what they say.
#include "server/openai_response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "server/json_text.h"
#include "support/answer_client.h"
#include "support/engine_harness.h"

namespace kipp {
namespace {

using test::AnyJson;
using test::join_stream;
using test::stream_messages;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const Tokenizer& tokenizer() {
  static const Tokenizer instance;
  return instance;
}

std::vector<Token> encode(std::string_view text) {
  return tokenizer().encode(text, AddedTokens::as_control);
}

Token byte_token(int byte) { return qwen_vocabulary().byte_token[static_cast<std::size_t>(byte)]; }

GenerateCall chat_call() {
  GenerateCall call;
  call.chat = true;
  call.prompts = {encode("some prompt")};
  call.splits_reasoning = true;
  call.request.sampling.seed = 7;
  return call;
}

GenerateCall text_call() {
  GenerateCall call;
  call.prompts = {encode("some prompt")};
  call.request.sampling.seed = 7;
  return call;
}

Event said(std::string text, std::optional<Logprobs> logprobs = {}) {
  const Token token = logprobs ? logprobs->chosen.token : 1;
  return TextDelta{.token = token, .text = std::move(text), .logprobs = std::move(logprobs)};
}

Event finished(FinishReason reason = FinishReason::stop, std::string matched_stop = {}) {
  Finished out;
  out.reason = reason;
  out.matched_stop = std::move(matched_stop);
  out.usage = {.prompt_tokens = 2, .cached_tokens = 1, .generated_tokens = 4};
  out.timings = {.queue = 1, .prompt = 0.25, .decode = 0.5};
  return out;
}

Event failed(ErrorCode code, std::string message) { return Failed{{code, std::move(message)}}; }

// The events of the one choice.
std::string stream_of(GenerateCall call, const std::vector<Event>& events) {
  call.stream = true;
  Answer answer(call, tokenizer(), {.id = "chatcmpl-0a", .created = 5, .model = "m"});
  std::string out;
  for (const Event& event : events) out += answer.on_event(0, event);
  EXPECT_TRUE(answer.complete());
  return out + answer.stream_end();
}

AnyJson whole_of(const GenerateCall& call, const std::vector<Event>& events) {
  Answer answer(call, tokenizer(), {.id = "chatcmpl-0a", .created = 5, .model = "m"});
  for (const Event& event : events) EXPECT_EQ(answer.on_event(0, event), "");
  EXPECT_TRUE(answer.complete());
  return AnyJson::parse(json_text(answer.whole()));
}

AnyJson choice_of(const GenerateCall& call, const std::vector<Event>& events) {
  return whole_of(call, events)["choices"][0];
}

TEST(ServerResponse, AChatStreamByteForByte) {
  const std::string head =
      R"(data: {"id":"chatcmpl-0a","object":"chat.completion.chunk","created":5,"model":"m",)";
  const auto chunk = [&](const std::string& delta) {
    return head + R"("choices":[{"index":0,"delta":)" + delta +
           R"(,"logprobs":null,"finish_reason":null}]})" + "\n\n";
  };
  EXPECT_EQ(
      stream_of(chat_call(),
                {said("<think>\n"), said("why"), said("\n</think>\n\nHi"), finished()}),
      chunk(R"({"role":"assistant","content":""})") + chunk(R"({"reasoning_content":"why"})") +
          chunk(R"({"content":"Hi"})") + head +
          R"("choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop",)"
          R"("stop_reason":null}],"timings":{"cache_n":1,"prompt_n":1,"prompt_ms":250.000,)"
          R"("prompt_per_token_ms":250.000,"prompt_per_second":4.000,"predicted_n":4,)"
          R"("predicted_ms":500.000,"predicted_per_token_ms":125.000,"predicted_per_second":8.000},)"
          R"("kipp":{"seed":7}})"
          "\n\ndata: [DONE]\n\n");
}

TEST(ServerResponse, AWholeChatAnswer) {
  EXPECT_EQ(whole_of(chat_call(), {said("<think>\nwhy\n</think>\n\n"), said("Hi"), finished()}),
            AnyJson::parse(R"({
      "id": "chatcmpl-0a", "object": "chat.completion", "created": 5, "model": "m",
      "choices": [{"index": 0, "logprobs": null, "finish_reason": "stop", "stop_reason": null,
                   "message": {"role": "assistant", "content": "Hi", "reasoning_content": "why"}}],
      "usage": {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6,
                "prompt_tokens_details": {"cached_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 0}},
      "timings": {"cache_n": 1, "prompt_n": 1, "prompt_ms": 250.0, "prompt_per_token_ms": 250.0,
                  "prompt_per_second": 4.0, "predicted_n": 4, "predicted_ms": 500.0,
                  "predicted_per_token_ms": 125.0, "predicted_per_second": 8.0},
      "kipp": {"seed": 7}})"));
}

TEST(ServerResponse, CompletionsNameTheStopStringThatEndedThem) {
  GenerateCall call = text_call();
  const std::vector<Event> events = {said("a"), said(""), finished(FinishReason::stop, "###")};
  EXPECT_EQ(choice_of(call, events), AnyJson::parse(R"({
      "index": 0, "text": "a", "logprobs": null, "finish_reason": "stop", "stop_reason": "###"})"));
  const std::string stream = stream_of(call, events);
  EXPECT_EQ(stream_messages(stream).size(), 2u) << "a token without text is no message";
  EXPECT_EQ(join_stream(stream)["choices"][0], choice_of(call, events));
  EXPECT_EQ(choice_of(call, {finished(FinishReason::length)})["finish_reason"], "length");
  EXPECT_EQ(choice_of(call, {finished(FinishReason::interrupted)})["finish_reason"], "abort");
}

TEST(ServerResponse, UsageComesWhenAsked) {
  GenerateCall call = chat_call();
  const std::vector<Event> events = {PromptProgress{.done = 2, .total = 2, .cached = 1}, said("a"),
                                     said("b"), finished()};
  for (const AnyJson& message : stream_messages(stream_of(call, events))) {
    EXPECT_FALSE(message.contains("usage"));
  }

  call.include_usage = true;
  std::vector<AnyJson> messages = stream_messages(stream_of(call, events));
  const AnyJson usage = whole_of(call, events)["usage"];
  EXPECT_EQ(messages.back()["choices"], AnyJson::array());
  EXPECT_EQ(messages.back()["usage"], usage);
  messages.pop_back();
  for (const AnyJson& message : messages) EXPECT_TRUE(message.at("usage").is_null());

  call.continuous_usage = true;
  messages = stream_messages(stream_of(call, events));
  std::vector<int> completion_tokens;
  for (const AnyJson& message : messages) {
    EXPECT_EQ(message.at("usage").at("prompt_tokens"), 2);
    EXPECT_EQ(message["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
    completion_tokens.push_back(message["usage"]["completion_tokens"]);
  }
  EXPECT_THAT(completion_tokens, ElementsAre(1, 1, 2, 4, 4));  // the role is sent with the first
}

TEST(ServerResponse, CountsTokensThatWereDrawnInsideAThinkBlock) {
  GenerateCall call = chat_call();
  call.starts_in_thinking = true;
  const AnyJson whole =
      whole_of(call, {said("a"), said("b"), said("</think>"), said("c"), finished()});
  EXPECT_EQ(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 3);
}

TEST(ServerResponse, EveryChoiceHasItsPlaceAndPromptsCountOnce) {
  GenerateCall call = text_call();
  call.prompts = {encode("a"), encode("b")};
  call.n = 2;
  Answer answer(call, tokenizer(), {.id = "cmpl-1", .created = 5, .model = "m"});
  for (const int choice : {3, 0, 2, 1}) {
    EXPECT_FALSE(answer.complete());
    answer.on_event(choice, said("text " + std::to_string(choice)));
    answer.on_event(choice, finished());
  }
  EXPECT_TRUE(answer.complete());
  const Json whole = answer.whole();
  for (int i = 0; i < 4; ++i) {
    const Json& choice = whole["choices"][static_cast<std::size_t>(i)];
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["text"], "text " + std::to_string(i));
  }
  EXPECT_EQ(answer.usage().prompt_tokens, 4);
  EXPECT_EQ(answer.usage().cached_tokens, 2);
  EXPECT_EQ(answer.usage().generated_tokens, 16);
  EXPECT_EQ(whole["usage"]["total_tokens"], 20);
  EXPECT_EQ(whole["timings"]["predicted_n"], 16);
  EXPECT_EQ(whole["timings"]["predicted_ms"], 500.0) << "choices run side by side";
}

TEST(ServerResponse, ReasoningIsSplitFromTheStateOfThePrompt) {
  GenerateCall call = chat_call();
  // Thinking off: the prompt holds an empty block, and the answer is content.
  AnyJson message = choice_of(call, {said("Hi"), finished()})["message"];
  EXPECT_EQ(message, AnyJson::parse(R"({"role": "assistant", "content": "Hi"})"));
  call.starts_in_thinking = true;
  message = choice_of(call, {said("abc</think>\n\nanswer"), finished()})["message"];
  EXPECT_EQ(message["reasoning_content"], "abc");
  EXPECT_EQ(message["content"], "answer");
  message = choice_of(call, {said("cut"), finished(FinishReason::length)})["message"];
  EXPECT_EQ(message["reasoning_content"], "cut");
  EXPECT_TRUE(message["content"].is_null());
  message = choice_of(call, {said("why</think>"), finished()})["message"];
  EXPECT_EQ(message["content"], "") << "an answer there was, though empty";
}

class ToolAnswers : public testing::Test {
 protected:
  ToolAnswers() { call_.parses_tools = true; }
  GenerateCall call_ = chat_call();
  const std::vector<Event> begun_ = {said("<tool_call>\n"),
                                     said("{\"name\": \"f\", \"arguments\": {"), said("\"a\": 1")};
  std::vector<Event> then(std::vector<Event> more) const {
    std::vector<Event> all = begun_;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(ToolAnswers, AreStreamedWithTheirArguments) {
  const auto events = then({said("}}"), said("\n</tool_call>"), finished()});
  const AnyJson choice = choice_of(call_, events);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"], AnyJson::parse(R"({"role": "assistant", "content": null,
      "tool_calls": [{"id": "call_0a_0_0", "type": "function",
                      "function": {"name": "f", "arguments": "{\"a\": 1}"}}]})"));
  std::vector<std::string> deltas;
  for (const AnyJson& part : stream_messages(stream_of(call_, events))) {
    deltas.push_back(part["choices"][0]["delta"].dump());
  }
  EXPECT_THAT(
      deltas,
      ElementsAre(
          R"({"content":"","role":"assistant"})",
          R"({"tool_calls":[{"function":{"arguments":"{","name":"f"},"id":"call_0a_0_0","index":0,)"
          R"("type":"function"}]})",
          R"({"tool_calls":[{"function":{"arguments":"\"a\": 1"},"index":0}]})",
          R"({"tool_calls":[{"function":{"arguments":"}"},"index":0}]})", "{}"));
}

TEST_F(ToolAnswers, ThatAreCutAreNotPresentedAsComplete) {
  const AnyJson cut = choice_of(call_, then({finished(FinishReason::length)}));
  EXPECT_EQ(cut["finish_reason"], "length");
  EXPECT_EQ(cut["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": 1");
  EXPECT_EQ(choice_of(call_, then({finished(FinishReason::stop, "x")}))["finish_reason"], "stop");
  const std::string no_json = ",}}\n</tool_call>";
  EXPECT_EQ(choice_of(call_, then({said(no_json), finished()}))["finish_reason"], "stop");
  const std::string ends = "}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {";
  EXPECT_EQ(choice_of(call_, then({said(ends), finished()}))["finish_reason"], "stop");
}

TEST_F(ToolAnswers, AreTextWhereNoToolsWereOffered) {
  call_.parses_tools = false;
  const AnyJson choice = choice_of(call_, then({said("}}\n</tool_call>"), finished()}));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_THAT(std::string(choice["message"]["content"]), HasSubstr("<tool_call>"));
}

// Clients send our messages back as they came.
TEST_F(ToolAnswers, AreAcceptedAsHistory) {
  call_.starts_in_thinking = true;
  std::vector<Event> events = then({said("}}"), said("\n</tool_call>"), finished()});
  events.insert(events.begin(), said("why</think>"));
  Answer answer(call_, tokenizer(), {.id = "chatcmpl-0a", .created = 5, .model = "m"});
  for (const Event& event : events) answer.on_event(0, event);
  const auto message = parse_chat_message(answer.whole()["choices"][0]["message"], 0);
  ASSERT_TRUE(message) << message.error().message;
  EXPECT_EQ(message->reasoning_content, "why");
  EXPECT_EQ(message->content, std::nullopt);
  EXPECT_EQ(message->tool_calls[0].name, "f");
}

Logprobs scored(Token chosen, float logprob, std::vector<TokenLogprob> best) {
  return {.chosen = {chosen, logprob}, .best = std::move(best)};
}
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

TEST(ServerResponse, ChatLogprobsHoldRawBytes) {
  GenerateCall call = chat_call();
  call.logprobs = 2;
  const Token a = byte_token('a');
  const Token f0 = byte_token(0xF0);
  const std::vector<Event> events = {
      said("", scored(f0, -0.1f, {{f0, -0.1f}, {a, kMinusInfinity}})), said("a", scored(a, 0, {})),
      finished()};
  const AnyJson choice = choice_of(call, events);
  EXPECT_EQ(choice["logprobs"], AnyJson::parse(R"({"content": [
      {"token": "\ufffd", "logprob": -0.1, "bytes": [240], "top_logprobs": [
          {"token": "\ufffd", "logprob": -0.1, "bytes": [240]},
          {"token": "a", "logprob": -9999.0, "bytes": [97]}]},
      {"token": "a", "logprob": 0.0, "bytes": [97], "top_logprobs": []}]})"));
  // With the token, though its text waits.
  const auto messages = stream_messages(stream_of(call, events));
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[1]["choices"][0]["delta"], AnyJson::object());
  EXPECT_EQ(messages[1]["choices"][0]["logprobs"]["content"].size(), 1u);
}

TEST(ServerResponse, CompletionLogprobsStandSideBySide) {
  GenerateCall call = text_call();
  call.logprobs = 1;
  const Token a = byte_token('a');
  const Token b = byte_token('b');
  std::vector<Event> events;
  TextStream text(tokenizer(), *StopMatcher::create({}));
  for (const Token token : {byte_token(0xE2), byte_token(0x82), byte_token(0xAC), a}) {
    events.push_back(said(text.push(token), scored(token, -1.5f, {{b, -0.5f}})));
  }
  events.push_back(finished());
  EXPECT_EQ(choice_of(call, events)["logprobs"], AnyJson::parse(R"({
      "tokens": ["bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "a"],
      "token_logprobs": [-1.5, -1.5, -1.5, -1.5],
      "top_logprobs": [{"b": -0.5, "bytes:\\xe2": -1.5}, {"b": -0.5, "bytes:\\x82": -1.5},
                       {"b": -0.5, "bytes:\\xac": -1.5}, {"b": -0.5, "a": -1.5}],
      "text_offset": [0, 0, 0, 1]})"));
}

// As evaluation harnesses score text: they drop the one drawn token from the end of the lists, and
// a stop token must be there to be dropped.
TEST(ServerResponse, EchoPutsThePromptAndItsLogprobsFirst) {
  GenerateCall call = text_call();
  call.prompts = {encode("Hé is")};
  ASSERT_EQ(call.prompts[0].size(), 3u);
  call.echo = true;
  const std::vector<Event> without = {said("!"), finished()};
  EXPECT_EQ(choice_of(call, without)["text"], "Hé is!");
  EXPECT_EQ(choice_of(call, {finished(FinishReason::length)})["text"], "Hé is");

  call.logprobs = 0;
  PromptLogprobs first{.first = 1, .tokens = {scored(call.prompts[0][1], -2, {})}};
  PromptLogprobs second{.first = 2, .tokens = {scored(call.prompts[0][2], -3, {})}};
  Event end = finished();
  std::get<Finished>(end).stop_token = scored(kImEnd, -4, {});
  const AnyJson choice = choice_of(call, {first, second, end});
  EXPECT_EQ(choice["text"], "Hé is");
  EXPECT_EQ(choice["logprobs"], AnyJson::parse(R"({
      "tokens": ["H", "é", " is", "<|im_end|>"], "token_logprobs": [null, -2.0, -3.0, -4.0],
      "top_logprobs": [null, {"é": -2.0}, {" is": -3.0}, {"<|im_end|>": -4.0}],
      "text_offset": [0, 1, 2, 5]})"));
  const auto messages = stream_messages(stream_of(call, {first, second, end}));
  EXPECT_EQ(messages[0]["choices"][0]["text"], "Hé") << "as soon as it was evaluated";
}

TEST(ServerResponse, EscapesWhatClientsTakeForTheEndOfALine) {
  const std::string text = "a\u2028\u2029\u0085\u009f\x7f\x01\n\t\"\\b €🌊";
  const std::string stream = stream_of(chat_call(), {said(text), finished()});
  EXPECT_THAT(stream, HasSubstr("\"a\\u2028\\u2029\\u0085\\u009f\\u007f\\u0001\\n"));
  EXPECT_THAT(stream, HasSubstr("\\\"\\\\b €🌊\""));
  EXPECT_EQ(join_stream(stream)["choices"][0]["message"]["content"], text);
  const std::string whole = json_text(Json{{"text", text}});
  EXPECT_THAT(
      whole, AllOf(HasSubstr("\"a\\u2028\\u2029\\u0085\\u009f\\u007f\\u0001\\n"), HasSubstr("€🌊")));
  EXPECT_EQ(AnyJson::parse(whole)["text"], text);
  EXPECT_EQ(json_text(Json("\xF0\x9F")), "\"\uFFFD\"");
}

TEST(ServerResponse, ReportsHowFarPromptsAreRead) {
  GenerateCall call = text_call();
  call.prompts = {encode("a b c"), encode("d")};
  call.return_progress = true;
  call.stream = true;
  call.n = 2;
  test::ManualClock clock;
  Answer answer(call, tokenizer(), {.id = "cmpl-1", .created = 5, .model = "m"}, clock);
  const auto progress = [&](int choice, PromptProgress event) {
    clock.advance(std::chrono::milliseconds(20));
    const std::string bytes = answer.on_event(choice, event);
    if (bytes.empty()) return AnyJson();
    const auto message = stream_messages(bytes + "data: [DONE]\n\n").at(0);
    EXPECT_EQ(message["choices"], AnyJson::array());
    return message["prompt_progress"];
  };
  EXPECT_EQ(progress(0, {.done = 1, .total = 3, .cached = 1}),
            AnyJson::parse(R"({"total": 4, "cache": 1, "processed": 1, "time_ms": 0.0})"));
  EXPECT_EQ(progress(1, {.done = 3, .total = 3, .cached = 3}), AnyJson());
  EXPECT_EQ(progress(2, {.done = 1, .total = 1, .cached = 0}),
            AnyJson::parse(R"({"total": 4, "cache": 1, "processed": 2, "time_ms": 40.0})"));
  call.return_progress = false;
  EXPECT_EQ(progress(0, {.done = 3, .total = 3, .cached = 1}), AnyJson());
}

TEST(ServerResponse, AFailureEndsTheStreamWithAnError) {
  GenerateCall call = text_call();
  call.n = 2;
  call.stream = true;
  call.include_usage = true;
  Answer answer(call, tokenizer(), {.id = "cmpl-1", .created = 5, .model = "m"});
  std::string stream = answer.on_event(0, said("a"));
  stream += answer.on_event(1, failed(ErrorCode::io, "device: lost"));
  EXPECT_FALSE(answer.complete());
  stream += answer.on_event(0, said("b"));
  stream += answer.on_event(0, failed(ErrorCode::io, "device: lost again"));
  EXPECT_TRUE(answer.complete());
  const auto messages = stream_messages(stream + answer.stream_end());
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[1], AnyJson::parse(R"({"error": {"message": "device: lost",
      "type": "server_error", "param": null, "code": null}})"));
  EXPECT_EQ(answer.error()->status, 500);

  call.stream = false;
  Answer whole(call, tokenizer(), {.id = "cmpl-1", .created = 5, .model = "m"});
  EXPECT_EQ(whole.on_event(0, failed(ErrorCode::interrupted, "engine: stopped")), "");
  EXPECT_EQ(whole.error()->status, 503);
}

TEST(ServerResponse, EngineErrorsHaveTheirStatus) {
  const ApiError queue = api_error({ErrorCode::exhausted, "queue: full"});
  EXPECT_EQ(queue.status, 429);
  EXPECT_EQ(error_object(queue)["error"]["type"], "rate_limit_error");
  const ApiError value = api_error({ErrorCode::invalid, "max_tokens: expected at least 0"});
  EXPECT_EQ(value.status, 400);
  EXPECT_EQ(value.param, "max_tokens");
  EXPECT_EQ(error_object(value)["error"]["type"], "invalid_request_error");
  EXPECT_EQ(api_error({ErrorCode::invalid, "no field: is named"}).param, "");
  EXPECT_EQ(api_error({ErrorCode::interrupted, "engine: stopped"}).status, 503);
  EXPECT_EQ(api_error({ErrorCode::refused, "x"}).status, 500);
}

}  // namespace
}  // namespace kipp
