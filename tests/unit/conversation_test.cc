// Turns over one session: what is kept, what is evaluated, and that a failed turn leaves no trace.
#include "engine/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/tiny_model.h"

namespace kipp {
namespace {

using testing::HasSubstr;

class ConversationTest : public testing::Test {
 protected:
  Conversation converse(int capacity = 320, const char* shape = "tiny-tied", CacheSalt salt = 0) {
    if (model_ == nullptr) model_ = test::open_twin_model(shape, Scheme::bf16, 20);
    auto session = Session::create(model_, capacity, salt);
    EXPECT_TRUE(session) << session.error().message;
    auto conversation = Conversation::create(model_, *std::move(session));
    EXPECT_TRUE(conversation) << conversation.error().message;
    return *std::move(conversation);
  }
  // Answers of a fixed text: the bias outweighs every logit of a tiny model.
  static GenerateParams saying(Token token, int times) {
    GenerateParams params;
    params.sampling.temperature = 0;
    params.sampling.logit_bias = {{token, 100.f}};
    params.max_tokens = times;
    return params;
  }
  static Generation ask(Conversation& conversation, std::string text,
                        const GenerateParams& params = saying(9707, 3)) {
    auto generation = conversation.ask(std::move(text), params, {});
    EXPECT_TRUE(generation) << generation.error().message;
    return *std::move(generation);
  }
  static std::vector<std::string> roles(const Conversation& conversation) {
    std::vector<std::string> out;
    for (const ChatMessage& message : conversation.messages()) out.push_back(message.role);
    return out;
  }

  std::shared_ptr<Model> model_;
};

TEST_F(ConversationTest, EvaluatesOnlyTheNewSuffix) {
  Conversation conversation = converse();
  const Generation first = ask(conversation, "one");
  EXPECT_EQ(first.reused_tokens, 0);
  const Generation second = ask(conversation, "two");
  // The first prompt and all of the answer but its last token, which was drawn and not evaluated.
  EXPECT_EQ(second.reused_tokens, first.prompt_tokens + 2);
  const Generation third = ask(conversation, "three");
  EXPECT_EQ(third.reused_tokens, second.prompt_tokens + 2);
  EXPECT_EQ(conversation.messages().size(), 6u);

  // Reuse changes nothing: a conversation that starts cold says the same.
  Conversation again = converse(150, "tiny-tied", /*salt=*/1);
  again.set_system("x");
  ask(again, "zero");
  again.set_system("");
  again.reset();
  ask(again, "one");
  EXPECT_EQ(ask(again, "two").logits_hash, second.logits_hash);
}

TEST_F(ConversationTest, SystemMessageComesFirstAndCanChange) {
  Conversation conversation = converse();
  conversation.set_system("Be brief.");
  ask(conversation, "one");
  EXPECT_EQ(roles(conversation), (std::vector<std::string>{"system", "user", "assistant"}));
  conversation.set_system("Be long.");
  EXPECT_EQ(roles(conversation), (std::vector<std::string>{"system", "user", "assistant"}));
  EXPECT_EQ(conversation.messages()[0].content, "Be long.");
  conversation.reset();
  EXPECT_EQ(roles(conversation), (std::vector<std::string>{"system"}));
  conversation.set_system("");
  EXPECT_TRUE(conversation.messages().empty());
}

TEST_F(ConversationTest, AFullContextIsASentenceAndTheSessionStaysUsable) {
  Conversation conversation = converse(64);
  ask(conversation, "one");
  const auto before = roles(conversation);
  std::string longer;
  for (int i = 0; i < 60; ++i) longer += " word";
  const auto refused = conversation.ask(longer, saying(9707, 3), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("the session holds 64"));
  EXPECT_EQ(roles(conversation), before);
  EXPECT_GT(ask(conversation, "two").reused_tokens, 0);
}

TEST_F(ConversationTest, AnInterruptedAnswerIsKeptAsFarAsItCame) {
  Conversation conversation = converse();
  std::atomic<bool> cancel = false;
  int events = 0;
  const auto answer =
      conversation.ask("one", saying(9707, 50),
                       {.on_text = [&](const TextEvent&) { cancel = ++events == 2; },
                        .on_prompt = {},
                        .cancel = &cancel});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->finish, FinishReason::interrupted);
  EXPECT_EQ(conversation.messages().back().content, "HelloHello");
  cancel = false;
  const Generation next = ask(conversation, "two");
  EXPECT_EQ(next.reused_tokens, answer->prompt_tokens + 2);
}

TEST_F(ConversationTest, AnAnswerThatNeverBeganLeavesNoTrace) {
  Conversation conversation = converse();
  const std::atomic<bool> cancel = true;
  ASSERT_TRUE(conversation.ask("one", saying(9707, 5),
                               {.on_text = {}, .on_prompt = {}, .cancel = &cancel}));
  EXPECT_TRUE(conversation.messages().empty());
}

TEST_F(ConversationTest, ThinkingIsAChoiceOnlyWhereTheTemplateHasOne) {
  Conversation conversation = converse();
  EXPECT_TRUE(conversation.thinking());
  EXPECT_FALSE(conversation.starts_in_thinking());
  const int with = ask(conversation, "one").prompt_tokens;
  conversation.reset();
  ASSERT_TRUE(conversation.set_thinking(false));
  EXPECT_FALSE(conversation.thinking());
  EXPECT_EQ(ask(conversation, "one").prompt_tokens, with + 4);  // <think>, \n\n, </think>, \n\n

  model_ = nullptr;
  Conversation thinker = converse(320, "tiny-untied");
  EXPECT_TRUE(thinker.starts_in_thinking());
  EXPECT_TRUE(thinker.set_thinking(true));
  const auto refused = thinker.set_thinking(false);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("always thinks"));
}

TEST(ReplyMessage, TakesReasoningApart) {
  const auto parts = [](ChatTemplate style, std::string_view text, bool inside) {
    const ChatMessage message = reply_message(style, text, inside);
    return std::pair(message.reasoning_content, message.content);
  };
  using Parts = std::pair<std::optional<std::string>, std::optional<std::string>>;
  const auto instruct = ChatTemplate::instruct;
  EXPECT_EQ(parts(instruct, "Hi\n", false), (Parts{std::nullopt, "Hi\n"}));
  EXPECT_EQ(parts(instruct, "<think>\nwhy\n</think>\n\nHi", false), (Parts{"why", "Hi"}));
  EXPECT_EQ(parts(instruct, "<think>\nhalf", false), (Parts{"half", ""}));
  EXPECT_EQ(parts(ChatTemplate::thinking_2507, "why\n</think>\n\nHi", true), (Parts{"why", "Hi"}));
  EXPECT_EQ(parts(ChatTemplate::instruct_2507, "<think>a</think>b", false),
            (Parts{std::nullopt, "<think>a</think>b"}));
}

TEST(ChatTemplateFor, RefusesEveryBaseCheckpointAndNoOther) {
  for (const Checkpoint& checkpoint : checkpoints()) {
    const auto style = chat_template_for(checkpoint);
    const bool base = checkpoint.id.ends_with("-base");
    EXPECT_EQ(style.has_value(), !base) << checkpoint.id;
    if (style) continue;
    EXPECT_THAT(style.error().message, HasSubstr(std::string(checkpoint.id)));
  }
}

}  // namespace
}  // namespace kipp
