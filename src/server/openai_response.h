// Engine events into answers of the OpenAI shape, whole or as a stream. Both are made from the same
// deltas (server/choice.h), so that a stream, joined, is the whole answer: text, reasoning, tool
// calls, log-probabilities, finish reasons and usage alike.
//
// Beyond OpenAI's fields: reasoning_content; stop_reason, the stop string that ended a choice (as
// vLLM); timings and prompt_progress (as llama.cpp); kipp.seed, with which the call can be
// repeated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"
#include "server/generate_call.h"
#include "tokenizer/chat_template.h"

namespace kipp {

// What the whole answer carries: who is answered, when, by what.
struct AnswerHead {
  std::string id;            // "cmpl-..." or "chatcmpl-..."
  std::int64_t created = 0;  // Unix seconds
  std::string model;
};

// The answer to one call: fed the events of its choices in whatever order they come, each choice's
// own in theirs. The I/O thread's.
class Answer {
 public:
  // `call`, the tokenizer and the clock outlive it.
  Answer(const GenerateCall& call, const Tokenizer& tokenizer, AnswerHead head,
         const Clock& clock = steady_clock());
  ~Answer();

  // Takes an event of choice `choice`. Returns the SSE bytes it adds to the stream ("data:
  // {...}\n\n", any number of them, often none); empty when the call does not stream, and after an
  // error, which is the last thing a stream says.
  std::string on_event(int choice, const Event& event);

  // All choices have had their terminal event.
  bool complete() const;
  // Of the first choice that failed: how the call as a whole ends. A stream has said so already.
  const std::optional<ApiError>& error() const;

  // Once complete: the last bytes of the stream (usage where asked for, "data: [DONE]\n\n"), or the
  // whole answer, which there is none of after an error; json_text() writes it.
  std::string stream_end();
  Json whole() const;

  // Sums over all choices; cached and prompt tokens once per prompt.
  Usage usage() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// {"error": {"message", "type", "param", "code"}}.
Json error_object(const ApiError& error);
// The same as the message of a stream.
std::string error_event(const ApiError& error);

// How an engine's refusal or failure is answered: a full queue 429, a stopped engine 503, an
// invalid value 400, anything else 500.
ApiError api_error(const Error& error);

}  // namespace kipp
