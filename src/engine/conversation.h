// A chat in turns over one session. The template is rendered anew for every turn and the session
// keeps what still agrees, so that only the new suffix is evaluated; where the template rewrites
// the past (it drops old reasoning), evaluation restarts there. A turn that fails leaves no trace
// in the history.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generate.h"
#include "engine/session.h"
#include "tokenizer/chat_template.h"

namespace kipp {

// The template to chat with. Refuses base checkpoints, which were never taught to converse.
Result<ChatTemplate> chat_template_for(const Checkpoint& checkpoint);

// Whether answers may begin with reasoning where the caller wants so, or, absent, leaves it to the
// template. Refused where the checkpoint leaves no choice: Instruct-2507 never thinks,
// Thinking-2507 always does; base ones do not converse. `field`: what the refusal names.
Result<bool> may_think(const Checkpoint& checkpoint, std::optional<bool> wanted,
                       std::string_view field);

// What a model answered, as a message: reasoning and content apart where the template knows
// reasoning.
ChatMessage reply_message(ChatTemplate style, std::string_view text, bool starts_in_thinking);

class Conversation {
 public:
  // Refuses base checkpoints.
  static Result<Conversation> create(std::shared_ptr<Model> model, Session session);

  void set_system(std::string text);   // empty: no system message
  void reset();                        // forgets every turn; the system message stays
  Result<void> set_thinking(bool on);  // refused as may_think() does
  // Whether answers may begin with reasoning.
  bool thinking() const;
  // Whether the prompt ends inside the think block, so that an answer begins as reasoning.
  bool starts_in_thinking() const { return style_ == ChatTemplate::thinking_2507; }

  // The user's next message, answered. Fails with ErrorCode::exhausted when the conversation does
  // not fit the session any more. An interrupted answer is kept as far as it came; one that had not
  // begun is not.
  Result<Generation> ask(std::string text, const GenerateParams& params,
                         const GenerateHooks& hooks);

  const std::vector<ChatMessage>& messages() const { return messages_; }
  const Session& session() const { return session_; }

 private:
  Conversation(std::shared_ptr<Model> model, Session session, ChatTemplate style);
  bool has_system() const { return !messages_.empty() && messages_[0].role == "system"; }
  Result<Generation> answer(const GenerateParams& params, const GenerateHooks& hooks);

  std::shared_ptr<Model> model_;
  Session session_;
  ChatTemplate style_;
  std::optional<bool> thinking_;  // absent: the template's default
  std::vector<ChatMessage> messages_;
};

}  // namespace kipp
