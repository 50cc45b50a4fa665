// Arbitrary bytes as a conversation, through all four chat templates. Input that is a JSON object
// is read as a request ({"messages": [...], "tools": [...]}); any other is a recipe whose bytes
// choose roles and texts, so that contents may hold anything, invalid UTF-8 included. The invariant
// that matters: as many control tokens as the template itself wrote, whatever the contents say.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/chat_template.h"
#include "tokenizer/vocabulary.h"

namespace {

using namespace kipp;

struct Conversation {
  std::vector<ChatMessage> messages;
  ChatOptions options;
};

void check(bool holds) {
  if (!holds) std::abort();
}

bool from_json(Json& request, Conversation& out) {
  if (const auto list = request.find("messages"); list != request.end() && list->is_array()) {
    for (const Json& json : *list) {
      auto message = parse_chat_message(json, static_cast<int>(out.messages.size()));
      if (!message) {
        check(!message.error().message.empty());
        return false;
      }
      out.messages.push_back(std::move(*message));
    }
  }
  if (const auto tools = request.find("tools"); tools != request.end() && tools->is_array()) {
    for (Json& tool : *tools) out.options.tools.push_back(std::move(tool));
  }
  return true;
}

class Recipe {
 public:
  explicit Recipe(std::string_view bytes) : rest_(bytes) {}

  bool done() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  std::string text() {
    static constexpr std::array<std::string_view, 12> kWords = {"<think>",
                                                                "</think>",
                                                                "<|im_end|>",
                                                                "<|im_start|>",
                                                                "<tool_response>",
                                                                "</tool_response>",
                                                                "<tool_call>",
                                                                "\n",
                                                                " ",
                                                                "user\n",
                                                                "<|",
                                                                "|>"};
    std::string text;
    for (int n = byte() % 8; n > 0; --n) {
      const std::uint8_t choice = byte();
      if (choice < 192) {
        text += kWords[choice % kWords.size()];
      } else {
        const std::size_t length = std::min<std::size_t>(choice % 32, rest_.size());
        text += rest_.substr(0, length);
        rest_.remove_prefix(length);
      }
    }
    return text;
  }

 private:
  std::string_view rest_;
};

Conversation from_recipe(std::string_view bytes) {
  static constexpr std::array<const char*, 5> kRoles = {"user", "assistant", "tool", "system", "x"};
  Recipe recipe(bytes);
  Conversation out;
  const std::uint8_t flags = recipe.byte();
  out.options.add_generation_prompt = (flags & 1) != 0;
  if ((flags & 2) != 0) out.options.enable_thinking = (flags & 4) != 0;
  if ((flags & 8) != 0) out.options.tools.push_back(Json{{"name", recipe.text()}});
  while (!recipe.done() && out.messages.size() < 32) {
    const std::uint8_t kind = recipe.byte();
    ChatMessage message;
    message.role = kRoles[kind % kRoles.size()];
    if ((kind & 64) == 0) message.content = recipe.text();
    if ((kind & 32) != 0) message.reasoning_content = recipe.text();
    if ((kind & 128) != 0) message.tool_calls.push_back({recipe.text(), Json(recipe.text())});
    out.messages.push_back(std::move(message));
  }
  return out;
}

std::size_t count_controls(const std::vector<Token>& ids) {
  return static_cast<std::size_t>(
      std::count_if(ids.begin(), ids.end(), [](Token id) { return id >= kFirstAddedToken; }));
}

void render_and_check(ChatTemplate style, const Conversation& conversation) {
  static const Tokenizer tokenizer;
  const auto chat = render_chat(style, conversation.messages, conversation.options);
  if (!chat) {
    check(!chat.error().message.empty());
    return;
  }
  std::string joined;
  std::size_t written_by_template = 0;
  for (const PromptPiece& piece : chat->pieces) {
    check(!piece.text.empty());
    joined += piece.text;
    if (piece.control) {
      written_by_template += count_controls(tokenizer.encode(piece.text, AddedTokens::as_control));
    }
  }
  const std::string text = chat->text();
  check(joined == text);
  const std::vector<Token> ids = chat->encode(tokenizer);
  check(count_controls(ids) == written_by_template);
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; });
  if (ascii) check(tokenizer.decode(ids, false) == text);  // elsewhere NFC may change the bytes
  check(chat->starts_in_thinking ==
        (style == ChatTemplate::thinking_2507 && conversation.options.add_generation_prompt));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Conversation conversation;
  Json request = Json::parse(bytes, nullptr, false);
  if (request.is_object()) {
    if (!from_json(request, conversation)) return 0;
  } else {
    conversation = from_recipe(bytes);
  }
  for (const ChatTemplate style : {ChatTemplate::base, ChatTemplate::instruct,
                                   ChatTemplate::instruct_2507, ChatTemplate::thinking_2507}) {
    render_and_check(style, conversation);
  }
  return 0;
}
