// Reading a message object of the OpenAI shape. What the templates have no place for is refused by
// name, so that nothing a client sends disappears silently.
#include <string_view>

#include "tokenizer/chat_template.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/python_json.h"

namespace kipp {
namespace {

Result<std::string> parse_string(const Json& value, const std::string& field) {
  if (!value.is_string()) {
    return fail(ErrorCode::invalid, "{}: expected a string, found {}", field, value.type_name());
  }
  return value.get<std::string>();
}

Result<std::string> parse_parts(const Json& parts, const std::string& field) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const std::string at = fmt::format("{}[{}]", field, i);
    if (!part.is_object()) {
      return fail(ErrorCode::invalid, "{}: expected an object, found {}", at, part.type_name());
    }
    const auto type = part.find("type");
    if (type == part.end() || !type->is_string()) {
      return fail(ErrorCode::invalid, "{}.type: expected \"text\", found {}", at,
                  type == part.end() ? "nothing" : type->type_name());
    }
    if (*type != "text") {
      return fail(ErrorCode::invalid,
                  "{}.type: expected \"text\", the only supported part, found {}", at,
                  in_quotes(type->get_ref<const std::string&>()));
    }
    const auto body = part.find("text");
    if (body == part.end()) return fail(ErrorCode::invalid, "{}.text: missing", at);
    KIPP_TRY_ASSIGN(part_text, parse_string(*body, at + ".text"));
    for (const auto& [key, value] : part.items()) {
      if (key != "type" && key != "text" && !value.is_null()) {
        return fail(ErrorCode::invalid, "{}: unsupported field {}", at, in_quotes(key));
      }
    }
    text += part_text;
  }
  return text;
}

Result<ToolCall> parse_tool_call(const Json& entry, const std::string& field) {
  if (!entry.is_object()) {
    return fail(ErrorCode::invalid, "{}: expected an object, found {}", field, entry.type_name());
  }
  std::string at = field;
  const Json* call = &entry;
  if (const auto wrapped = entry.find("function"); wrapped != entry.end() && !wrapped->is_null()) {
    at += ".function";
    call = &*wrapped;
    if (!call->is_object()) {
      return fail(ErrorCode::invalid, "{}: expected an object, found {}", at, call->type_name());
    }
    for (const auto& [key, value] : call->items()) {
      if (key != "name" && key != "arguments" && !value.is_null()) {
        return fail(ErrorCode::invalid, "{}: unsupported field {}", at, in_quotes(key));
      }
    }
  }
  for (const auto& [key, value] : entry.items()) {
    if (value.is_null() || key == "function") continue;
    if (key == "type" && value != "function") {
      return fail(ErrorCode::invalid, "{}.type: expected \"function\", found another", field);
    }
    // id and index tie calls to answers, which the templates do by order alone.
    const bool known = key == "type" || key == "id" || key == "index" ||
                       (call == &entry && (key == "name" || key == "arguments"));
    if (!known) return fail(ErrorCode::invalid, "{}: unsupported field {}", field, in_quotes(key));
  }
  const auto name = call->find("name");
  if (name == call->end()) return fail(ErrorCode::invalid, "{}.name: missing", at);
  const auto arguments = call->find("arguments");
  if (arguments == call->end()) return fail(ErrorCode::invalid, "{}.arguments: missing", at);
  KIPP_TRY_ASSIGN(name_text, parse_string(*name, at + ".name"));
  if (nested_deeper_than(*arguments, kMaxJsonDepth)) {
    return fail(ErrorCode::invalid, "{}.arguments: expected at most {} nested levels, found more",
                at, kMaxJsonDepth);
  }
  return ToolCall{std::move(name_text), *arguments};
}

Result<void> parse_field(const std::string& key, const Json& value, const std::string& at,
                         ChatMessage& message) {
  const std::string field = at + "." + key;
  const bool assistant = message.role == "assistant";
  if (key == "content") {
    if (value.is_array()) {
      KIPP_TRY_ASSIGN(text, parse_parts(value, field));
      message.content = std::move(text);
      return {};
    }
    if (!value.is_string()) {
      return fail(ErrorCode::invalid,
                  "{}: expected a string, null or a list of text parts, found {}", field,
                  value.type_name());
    }
    message.content = value.get<std::string>();
    return {};
  }
  if (key == "reasoning_content" && assistant) {
    KIPP_TRY_ASSIGN(text, parse_string(value, field));
    message.reasoning_content = std::move(text);
    return {};
  }
  if (key == "tool_calls" && assistant) {
    if (!value.is_array()) {
      return fail(ErrorCode::invalid, "{}: expected a list, found {}", field, value.type_name());
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
      KIPP_TRY_ASSIGN(call, parse_tool_call(value[i], fmt::format("{}[{}]", field, i)));
      message.tool_calls.push_back(std::move(call));
    }
    return {};
  }
  // Neither is written by any of the templates: answers follow calls in order.
  if ((key == "tool_call_id" || key == "name") && message.role == "tool") {
    KIPP_TRY(parse_string(value, field));
    return {};
  }
  // OpenAI's own replies carry an empty list, and clients send replies back as they came.
  if (key == "annotations" && assistant && value.is_array() && value.empty()) return {};
  return fail(ErrorCode::invalid, "{}: unsupported field {} for the role {}", at, in_quotes(key),
              message.role);
}

}  // namespace

Result<ChatMessage> parse_chat_message(const Json& json, int index) {
  const std::string at = fmt::format("messages[{}]", index);
  if (!json.is_object()) {
    return fail(ErrorCode::invalid, "{}: expected an object, found {}", at, json.type_name());
  }
  const auto role = json.find("role");
  if (role == json.end()) return fail(ErrorCode::invalid, "{}.role: missing", at);
  ChatMessage message;
  KIPP_TRY_ASSIGN(role_text, parse_string(*role, at + ".role"));
  if (role_text != "system" && role_text != "user" && role_text != "assistant" &&
      role_text != "tool") {
    return fail(ErrorCode::invalid, "{}.role: expected system, user, assistant or tool, found {}",
                at, in_quotes(role_text));
  }
  message.role = std::move(role_text);
  for (const auto& [key, value] : json.items()) {
    if (key == "role" || value.is_null()) continue;
    KIPP_TRY(parse_field(key, value, at, message));
  }
  return message;
}

}  // namespace kipp
