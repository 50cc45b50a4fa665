// The four official chat templates as code: conversation -> prompt. Byte-equal to the Jinja
// originals, with one difference that is a promise: text from users, tools and tool descriptions
// never becomes a control token, because rendering yields pieces that say which parts the template
// wrote.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "tokenizer/tokenizer.h"

namespace kipp {

using Json = nlohmann::ordered_json;

// Which of the four official templates. The base checkpoints carry one too, though kipp offers no
// chat on them.
enum class ChatTemplate : std::uint8_t { base, instruct, instruct_2507, thinking_2507 };

struct ToolCall {
  std::string name;
  Json arguments;  // a string is written as it is, anything else as JSON
};

struct ChatMessage {
  std::string role;                              // system, user, assistant, tool
  std::optional<std::string> content;            // absent: null in the request
  std::optional<std::string> reasoning_content;  // assistant only
  std::vector<ToolCall> tool_calls;              // assistant only
};

struct ChatOptions {
  bool add_generation_prompt = true;
  std::optional<bool> enable_thinking;  // absent: the template's default
  std::vector<Json> tools;  // the whole objects as the request gave them; see nested_deeper_than()
};

// A stretch of the prompt. Only `control` pieces may hold control tokens.
struct PromptPiece {
  std::string text;
  bool control = false;
};

struct RenderedChat {
  std::vector<PromptPiece> pieces;  // none empty, no two neighbours of one kind
  bool starts_in_thinking = false;  // the prompt ends inside <think>: output begins as reasoning

  std::string text() const;  // all pieces joined
  // Added tokens are looked for in control pieces alone. What lies between two of them is tokenized
  // as one stretch across pieces, so that without added tokens in the contents the ids are those of
  // encoding text() at once.
  std::vector<Token> encode(const Tokenizer& tokenizer) const;
};

// Fails on an empty conversation, an unknown role (which Jinja would silently leave out), or what
// the template itself cannot render: a first system message without text, on base any message but a
// tool's without text.
Result<RenderedChat> render_chat(ChatTemplate style, std::span<const ChatMessage> messages,
                                 const ChatOptions& options);

// A message object of the OpenAI shape (tool_calls with or without `function`). `index` is its
// place in the request, for errors, which name the offending field. content may be a string, null,
// absent or a list of text parts, which are joined with nothing between them. A field that is null
// counts as absent; a field that kipp does not know is refused.
Result<ChatMessage> parse_chat_message(const Json& message, int index);

}  // namespace kipp
