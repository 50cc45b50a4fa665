#include "tokenizer/chat_template.h"

#include <array>
#include <string_view>
#include <utility>

#include "tokenizer/python_json.h"
#include "tokenizer/vocabulary.h"

namespace kipp {
namespace {

constexpr std::string_view kToolsBegin =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kToolsEnd =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n";
constexpr std::string_view kTurnEnd = "<|im_end|>\n";

class Pieces {
 public:
  void control(std::string_view text) { add(text, true); }
  void content(std::string_view text) { add(text, false); }
  std::vector<PromptPiece> take() { return std::move(pieces_); }

 private:
  void add(std::string_view text, bool control) {
    if (text.empty()) return;
    if (!pieces_.empty() && pieces_.back().control == control) {
      pieces_.back().text += text;
    } else {
      pieces_.push_back({std::string(text), control});
    }
  }
  std::vector<PromptPiece> pieces_;
};

std::string_view trim_front(std::string_view text) {
  const auto first = text.find_first_not_of('\n');
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

std::string_view trim_back(std::string_view text) {
  const auto last = text.find_last_not_of('\n');
  return last == std::string_view::npos ? std::string_view() : text.substr(0, last + 1);
}

// An assistant's message taken apart as the thinking templates do.
struct Reply {
  std::string_view reasoning;
  std::string_view content;
};

Reply split_reply(const ChatMessage& message) {
  constexpr std::string_view kOpen = "<think>";
  constexpr std::string_view kClose = "</think>";
  const std::string_view content = message.content ? *message.content : std::string_view();
  if (message.reasoning_content) return {*message.reasoning_content, content};
  const auto first_close = content.find(kClose);
  if (first_close == std::string_view::npos) return {{}, content};
  std::string_view reasoning = trim_back(content.substr(0, first_close));
  if (const auto open = reasoning.rfind(kOpen); open != std::string_view::npos) {
    reasoning = reasoning.substr(open + kOpen.size());
  }
  return {trim_front(reasoning), trim_front(content.substr(content.rfind(kClose) + kClose.size()))};
}

// What the thinking templates keep the reasoning after: the last user message that is not a tool's
// answer in disguise, or the last message where there is none.
std::size_t last_query(std::span<const ChatMessage> messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const ChatMessage& message = messages[i];
    if (message.role == "user" && message.content &&
        !(message.content->starts_with("<tool_response>") &&
          message.content->ends_with("</tool_response>"))) {
      return i;
    }
  }
  return messages.size() - 1;
}

Result<void> append_json(const Json& value, const std::string& field, Pieces& out) {
  std::string text;
  if (const auto written = append_python_json(value, text); !written) {
    return fail(ErrorCode::invalid, "{}: {}", field, written.error().message);
  }
  out.content(text);
  return {};
}

class Renderer {
 public:
  Renderer(ChatTemplate style, std::span<const ChatMessage> messages, const ChatOptions& options)
      : style_(style), messages_(messages), options_(options), last_query_(last_query(messages)) {}

  Result<RenderedChat> render() {
    KIPP_TRY(preamble());
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const std::string& role = messages_[i].role;
      if (role == "user" || (role == "system" && i > 0)) {
        out_.control("<|im_start|>" + role + "\n");
        out_.content(content(i));
        out_.control(kTurnEnd);
      } else if (role == "assistant") {
        KIPP_TRY(assistant(i));
      } else if (role == "tool") {
        tool_response(i);
      }
    }
    RenderedChat chat;
    if (options_.add_generation_prompt) chat.starts_in_thinking = generation_prompt();
    chat.pieces = out_.take();
    return chat;
  }

 private:
  std::string_view content(std::size_t i) const {
    return messages_[i].content ? *messages_[i].content : std::string_view();
  }

  // The tools' turn, which takes the first system message in, or that message's own turn.
  Result<void> preamble() {
    const bool system_first = messages_[0].role == "system";
    if (options_.tools.empty()) {
      if (system_first) {
        out_.control("<|im_start|>system\n");
        out_.content(content(0));
        out_.control(kTurnEnd);
      }
      return {};
    }
    out_.control("<|im_start|>system\n");
    if (system_first) {
      out_.content(content(0));
      out_.control("\n\n");
    }
    out_.control(kToolsBegin);
    for (std::size_t i = 0; i < options_.tools.size(); ++i) {
      out_.control("\n");
      KIPP_TRY(append_json(options_.tools[i], fmt::format("tools[{}]", i), out_));
    }
    out_.control(kToolsEnd);
    return {};
  }

  Result<void> assistant(std::size_t i) {
    const ChatMessage& message = messages_[i];
    out_.control("<|im_start|>assistant\n");
    Reply reply{{}, content(i)};
    if (style_ != ChatTemplate::instruct_2507) {
      reply = split_reply(message);
      const bool last = i + 1 == messages_.size();
      if (i > last_query_ && (last || !reply.reasoning.empty())) {
        out_.control("<think>\n");
        out_.content(trim_front(trim_back(reply.reasoning)));
        out_.control("\n</think>\n\n");
        out_.content(trim_front(reply.content));
      } else {
        out_.content(reply.content);
      }
    } else {
      out_.content(reply.content);
    }
    for (std::size_t k = 0; k < message.tool_calls.size(); ++k) {
      const ToolCall& call = message.tool_calls[k];
      if (k > 0 || !reply.content.empty()) out_.control("\n");
      out_.control("<tool_call>\n{\"name\": \"");
      out_.content(call.name);
      out_.control("\", \"arguments\": ");
      if (call.arguments.is_string()) {
        out_.content(call.arguments.get_ref<const std::string&>());
      } else {
        KIPP_TRY(append_json(call.arguments,
                             fmt::format("messages[{}].tool_calls[{}].arguments", i, k), out_));
      }
      out_.control("}\n</tool_call>");
    }
    out_.control(kTurnEnd);
    return {};
  }

  // Neighbouring tool messages share one user turn.
  void tool_response(std::size_t i) {
    if (i == 0 || messages_[i - 1].role != "tool") out_.control("<|im_start|>user");
    out_.control("\n<tool_response>\n");
    // Jinja prints a null as Python does, and only the base template lets one come this far.
    const bool null = style_ == ChatTemplate::base && !messages_[i].content;
    out_.content(null ? std::string_view("None") : content(i));
    out_.control("\n</tool_response>");
    if (i + 1 == messages_.size() || messages_[i + 1].role != "tool") out_.control(kTurnEnd);
  }

  // True when the prompt ends inside a think block.
  bool generation_prompt() {
    out_.control("<|im_start|>assistant\n");
    if (style_ == ChatTemplate::thinking_2507) {
      out_.control("<think>\n");
      return true;
    }
    if (style_ != ChatTemplate::instruct_2507 && options_.enable_thinking == false) {
      out_.control("<think>\n\n</think>\n\n");
    }
    return false;
  }

  ChatTemplate style_;
  std::span<const ChatMessage> messages_;
  const ChatOptions& options_;
  std::size_t last_query_;
  Pieces out_;
};

// The added token at the beginning of `text`, or null.
const AddedToken* added_token_at(std::string_view text) {
  for (const AddedToken& token : added_tokens()) {
    if (text.starts_with(token.text)) return &token;
  }
  return nullptr;
}

}  // namespace

std::string RenderedChat::text() const {
  std::string all;
  for (const PromptPiece& piece : pieces) all += piece.text;
  return all;
}

std::vector<Token> RenderedChat::encode(const Tokenizer& tokenizer) const {
  std::vector<Token> tokens;
  std::string stretch;  // ordinary text since the last control token
  const auto flush = [&] {
    if (!stretch.empty()) tokenizer.encode(stretch, AddedTokens::as_text, tokens);
    stretch.clear();
  };
  for (const PromptPiece& piece : pieces) {
    std::string_view rest = piece.text;
    // Every added token begins with '<'.
    for (std::size_t at = 0; piece.control && (at = rest.find('<', at)) != rest.npos;) {
      const AddedToken* found = added_token_at(rest.substr(at));
      if (found == nullptr) {
        ++at;
        continue;
      }
      stretch += rest.substr(0, at);
      flush();
      tokens.push_back(found->id);
      rest = rest.substr(at + found->text.size());
      at = 0;
    }
    stretch += rest;
  }
  flush();
  return tokens;
}

Result<RenderedChat> render_chat(ChatTemplate style, std::span<const ChatMessage> messages,
                                 const ChatOptions& options) {
  if (messages.empty())
    return fail(ErrorCode::invalid, "messages: expected at least one, found none");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    const bool system = message.role == "system";
    const bool tool = message.role == "tool";
    if (!system && !tool && message.role != "user" && message.role != "assistant") {
      return fail(ErrorCode::invalid,
                  "messages[{}].role: expected system, user, assistant or tool, found another", i);
    }
    if (!message.content && ((system && i == 0) || (style == ChatTemplate::base && !tool))) {
      return fail(ErrorCode::invalid, "messages[{}].content: expected text, found null", i);
    }
  }
  return Renderer(style, messages, options).render();
}

}  // namespace kipp
