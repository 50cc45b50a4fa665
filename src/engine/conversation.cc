#include "engine/conversation.h"

#include <utility>

namespace kipp {
namespace {

std::string_view trim_newlines(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

Result<ChatTemplate> chat_template_for(const Checkpoint& checkpoint) {
  switch (checkpoint.variant) {
    case Variant::base:
      break;
    case Variant::instruct:
      return ChatTemplate::instruct;
    case Variant::instruct_2507:
      return ChatTemplate::instruct_2507;
    case Variant::thinking_2507:
      return ChatTemplate::thinking_2507;
  }
  return fail(ErrorCode::invalid,
              "{}: expected an instruct checkpoint, found a base one, which completes text and was "
              "never taught to converse",
              checkpoint.id);
}

ChatMessage reply_message(ChatTemplate style, std::string_view text, bool starts_in_thinking) {
  constexpr std::string_view kOpen = "<think>";
  constexpr std::string_view kClose = "</think>";
  ChatMessage message{"assistant", {}, {}, {}};
  const bool opened = style != ChatTemplate::instruct_2507 && text.starts_with(kOpen);
  if (!opened && !starts_in_thinking) {
    message.content = text;
    return message;
  }
  if (opened) text.remove_prefix(kOpen.size());
  const auto close = text.find(kClose);
  message.reasoning_content = trim_newlines(text.substr(0, close));
  std::string_view content;  // none yet where the reasoning was cut short
  if (close != std::string_view::npos) content = text.substr(close + kClose.size());
  message.content = trim_newlines(content);
  return message;
}

Conversation::Conversation(std::shared_ptr<Model> model, Session session, ChatTemplate style)
    : model_(std::move(model)), session_(std::move(session)), style_(style) {}

Result<Conversation> Conversation::create(std::shared_ptr<Model> model, Session session) {
  KIPP_TRY_ASSIGN(style, chat_template_for(model->checkpoint()));
  return Conversation(std::move(model), std::move(session), style);
}

void Conversation::set_system(std::string text) {
  if (has_system()) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {"system", std::move(text), {}, {}});
}

void Conversation::reset() { messages_.resize(has_system() ? 1 : 0); }

Result<void> Conversation::set_thinking(bool on) {
  const bool free = style_ == ChatTemplate::instruct;
  if (!free && on != thinking()) {
    return fail(ErrorCode::invalid, "thinking: {} {} thinks", model_->checkpoint().id,
                on ? "never" : "always");
  }
  if (free) thinking_ = on;
  return {};
}

bool Conversation::thinking() const {
  return style_ != ChatTemplate::instruct_2507 && thinking_ != false;
}

Result<Generation> Conversation::ask(std::string text, const GenerateParams& params,
                                     const GenerateHooks& hooks) {
  messages_.push_back({"user", std::move(text), {}, {}});
  auto generation = answer(params, hooks);
  if (!generation || generation->tokens.empty()) {
    messages_.pop_back();
    return generation;
  }
  messages_.push_back(reply_message(style_, generation->text, starts_in_thinking()));
  return generation;
}

Result<Generation> Conversation::answer(const GenerateParams& params, const GenerateHooks& hooks) {
  ChatOptions options;
  options.enable_thinking = thinking_;
  KIPP_TRY_ASSIGN(chat, render_chat(style_, messages_, options));
  const std::vector<Token> prompt = chat.encode(model_->tokenizer());
  if (static_cast<int>(prompt.size()) > session_.capacity()) {
    return fail(ErrorCode::exhausted,
                "context: with this message the conversation takes {} tokens, the session holds {}",
                prompt.size(), session_.capacity());
  }
  return generate(*model_, session_, prompt, params, hooks);
}

}  // namespace kipp
