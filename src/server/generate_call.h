// One call of /v1/completions or /v1/chat/completions, checked and tokenized: what the engine is
// asked, and how the answer is to be written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "model/checkpoints.h"
#include "tokenizer/tokenizer.h"

namespace kipp {

// What requests are translated against.
struct ServedModel {
  std::string id;  // what /v1/models says and `model` of a request must be
  const Tokenizer* tokenizer = nullptr;
  const Checkpoint* checkpoint = nullptr;
  int context_length = 0;  // the most positions of one sequence
};

// Answered in the error object of the OpenAI shape.
struct ApiError {
  int status = 400;
  std::string message;  // one sentence: the field, what was expected, what was found
  std::string param;    // the field, where there is one: "messages[2].content"
  std::string code;     // "context_length_exceeded" and the like, where clients look for one
};

// The types of the API's error object: invalid_request_error, authentication_error,
// rate_limit_error, server_error.
std::string error_type(int status);

struct GenerateCall {
  bool chat = false;
  std::string user;  // for the log; changes nothing

  // One for chat. Completions: in the order of the request; choice = prompt * n + i.
  std::vector<std::vector<Token>> prompts;
  int n = 1;
  // Per choice: `prompt` is empty, and the seed of choice i is draw_bits(seed, i) where there are
  // several.
  Request request;

  // How to answer.
  bool stream = false;
  bool include_usage = false;     // a last chunk with usage
  bool continuous_usage = false;  // usage in every chunk
  bool return_progress = false;   // prompt progress in the stream
  bool echo = false;              // completions: the prompt before the answer
  // Completions: the `logprobs` number; chat: `top_logprobs`, 0 with `logprobs` alone. Absent:
  // none.
  std::optional<int> logprobs;

  // Chat alone.
  bool starts_in_thinking = false;  // the prompt ends inside <think>
  bool splits_reasoning = false;    // an answer may hold <think>; else the tag is text
  bool parses_tools = false;        // tools were offered: <tool_call> is a call; else it is text
};

}  // namespace kipp
