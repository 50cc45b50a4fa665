#include "engine/conversation.h"

#include <utility>

#include "tokenizer/output_parser.h"

namespace kipp {

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

Result<bool> may_think(const Checkpoint& checkpoint, std::optional<bool> wanted,
                       std::string_view field) {
  KIPP_TRY_ASSIGN(style, chat_template_for(checkpoint));
  const bool able = style != ChatTemplate::instruct_2507;
  if (style != ChatTemplate::instruct && wanted && *wanted != able) {
    return fail(ErrorCode::invalid, "{}: {} {} thinks", field, checkpoint.id,
                able ? "always" : "never");
  }
  return able && wanted != false;
}

ChatMessage reply_message(ChatTemplate style, std::string_view text, bool starts_in_thinking) {
  OutputParser parser({.starts_in_thinking = starts_in_thinking,
                       .splits_reasoning = style != ChatTemplate::instruct_2507,
                       .parses_tools = false});
  ParsedDelta reply = parser.push(text);
  reply.append(parser.finish());
  ChatMessage message{"assistant", std::move(reply.content), {}, {}};
  if (parser.has_reasoning()) message.reasoning_content = std::move(reply.reasoning);
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
  KIPP_TRY(may_think(model_->checkpoint(), on, "thinking"));
  thinking_ = on;
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
