// What a client makes of a stream: its messages, and these joined to what the whole answer would
// have been. Written from OpenAI's description of the stream, not from the server's code.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kipp::test {

// Members compare in any order.
using AnyJson = nlohmann::json;

// The messages of a stream that is over: each one line of data, the last [DONE], which is left out.
inline std::vector<AnyJson> stream_messages(std::string_view stream) {
  std::vector<AnyJson> out;
  bool done = false;
  while (!stream.empty()) {
    const auto end = stream.find("\n\n");
    const std::string_view message = stream.substr(0, end);
    EXPECT_TRUE(end != stream.npos && message.starts_with("data: ") && !done) << message;
    EXPECT_EQ(message.find('\n'), message.npos);
    if (end == stream.npos) break;
    stream.remove_prefix(end + 2);
    done = message == "data: [DONE]";
    if (done) continue;
    out.push_back(AnyJson::parse(message.substr(6), nullptr, false));
    EXPECT_TRUE(out.back().is_object()) << message;
  }
  EXPECT_TRUE(done) << "a stream ends with [DONE]";
  return out;
}

class StreamClient {
 public:
  void take(const AnyJson& message) {
    for (const auto& [key, value] : message.items()) {
      if (key == "choices") {
        for (const AnyJson& choice : value) take_choice(choice);
      } else if (key == "object") {
        std::string object = value;
        if (object.ends_with(".chunk")) object.resize(object.size() - 6);
        set_once(answer_[key], object);
      } else if (key == "id" || key == "created" || key == "model" || key == "kipp") {
        set_once(answer_[key], value);
      } else if (key == "usage") {
        if (!value.is_null()) answer_[key] = value;
      } else if (key == "timings") {
        answer_[key] = value;
      } else {
        EXPECT_EQ(key, "prompt_progress");
      }
    }
  }

  AnyJson answer() const {
    AnyJson out = answer_;
    out["choices"] = AnyJson::array();
    for (const auto& [index, choice] : choices_) {
      EXPECT_FALSE(choice.at("finish_reason").is_null()) << "choice " << index;
      out["choices"].push_back(choice);
    }
    return out;
  }

 private:
  static void set_once(AnyJson& field, const AnyJson& value) {
    EXPECT_TRUE(field.is_null() || field == value) << field << " became " << value;
    field = value;
  }

  void take_choice(const AnyJson& part) {
    const int index = part.at("index");
    const bool first = !choices_.contains(index);
    AnyJson& choice = choices_[index];
    if (first) choice = {{"index", index}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    EXPECT_TRUE(choice["finish_reason"].is_null()) << "nothing follows the end of a choice";
    choice["finish_reason"] = part.at("finish_reason");
    if (part.contains("stop_reason")) choice["stop_reason"] = part["stop_reason"];
    if (part.contains("delta")) {
      EXPECT_EQ(part["delta"].contains("role"), first);
      take_delta(part["delta"], choice["message"]);
    } else {
      append(choice["text"], part.at("text"));
    }
    if (!part.at("logprobs").is_null()) {
      for (const auto& [list, entries] : part["logprobs"].items()) {
        for (const AnyJson& entry : entries) choice["logprobs"][list].push_back(entry);
      }
    }
  }

  static void take_delta(const AnyJson& delta, AnyJson& message) {
    for (const auto& [key, value] : delta.items()) {
      if (key == "role") {
        message[key] = value;
      } else if (key == "content" || key == "reasoning_content") {
        append(message[key], value);
      } else {
        EXPECT_EQ(key, "tool_calls");
        for (const AnyJson& piece : value) take_call(piece, message[key]);
      }
    }
  }

  static void take_call(const AnyJson& piece, AnyJson& calls) {
    const std::size_t index = piece.at("index");
    EXPECT_LE(index, calls.size());
    const AnyJson& function = piece.at("function");
    if (index == calls.size()) {
      calls.push_back({{"id", piece.at("id")},
                       {"type", piece.at("type")},
                       {"function", {{"name", function.at("name")}, {"arguments", ""}}}});
    } else {
      EXPECT_FALSE(piece.contains("id") || function.contains("name"));
    }
    append(calls[index]["function"]["arguments"], function.at("arguments"));
  }

  static void append(AnyJson& text, const AnyJson& more) {
    const std::string before = text.is_null() ? "" : text.get<std::string>();
    text = before + more.get<std::string>();
  }

  AnyJson answer_ = AnyJson::object();
  std::map<int, AnyJson> choices_;
};

inline AnyJson join_stream(std::string_view stream) {
  StreamClient client;
  for (const AnyJson& message : stream_messages(stream)) client.take(message);
  return client.answer();
}

}  // namespace kipp::test
