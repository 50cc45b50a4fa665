// Renders conversations for tests/python/test_chat_templates.py. One JSON object a line on standard
// input:
//   {"template": "instruct", "messages": [...], "kwargs": {"add_generation_prompt",
//   "enable_thinking", "tools"}}
// and one a line out: {"text": ..., "ids": [...]} or {"error": ...}.
#include <fmt/format.h>

#include <iostream>
#include <map>
#include <string>

#include "tokenizer/chat_template.h"

namespace {

using kipp::Json;

kipp::Result<kipp::RenderedChat> render(const Json& request) {
  static const std::map<std::string, kipp::ChatTemplate> kStyles = {
      {"base", kipp::ChatTemplate::base},
      {"instruct", kipp::ChatTemplate::instruct},
      {"instruct-2507", kipp::ChatTemplate::instruct_2507},
      {"thinking-2507", kipp::ChatTemplate::thinking_2507}};
  std::vector<kipp::ChatMessage> messages;
  for (const Json& json : request["messages"]) {
    KIPP_TRY_ASSIGN(message, kipp::parse_chat_message(json, static_cast<int>(messages.size())));
    messages.push_back(std::move(message));
  }
  const Json& kwargs = request["kwargs"];
  kipp::ChatOptions options;
  options.add_generation_prompt = kwargs.value("add_generation_prompt", false);
  if (kwargs.contains("enable_thinking")) options.enable_thinking = kwargs["enable_thinking"];
  for (const Json& tool : kwargs.value("tools", Json::array())) options.tools.push_back(tool);
  return render_chat(kStyles.at(request["template"]), messages, options);
}

}  // namespace

int main() {
  const kipp::Tokenizer tokenizer;
  for (std::string line; std::getline(std::cin, line);) {
    const auto chat = render(Json::parse(line));
    Json reply;
    if (chat) {
      reply = {{"text", chat->text()}, {"ids", chat->encode(tokenizer)}};
    } else {
      reply = {{"error", chat.error().message}};
    }
    std::cout << reply.dump() << '\n';
  }
  return 0;
}
