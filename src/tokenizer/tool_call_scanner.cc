#include "tokenizer/tool_call_scanner.h"

#include <nlohmann/json.hpp>

namespace kipp {
namespace {

// The text that a JSON string literal stands for; empty if it is none.
std::string decoded(const std::string& literal) {
  const auto json = nlohmann::json::parse(literal, nullptr, /*allow_exceptions=*/false);
  return json.is_string() ? json.get<std::string>() : std::string();
}

constexpr bool is_scalar_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' ||
         c == 'E';
}

}  // namespace

ToolCallScanner::Step ToolCallScanner::push(char c, std::string& arguments) {
  if (state_ == State::in_value) return continue_value(c, arguments);
  if (state_ == State::in_tag) {
    if (c != kToolCallClose[tag_matched_]) return Step::over;
    return ++tag_matched_ == kToolCallClose.size() ? Step::closed : Step::more;
  }
  if (state_ == State::in_key) {
    literal_ += c;
    if (ends_string(c)) {
      member_ = member_of_key();
      state_ = State::before_colon;
    }
    return Step::more;
  }
  if (is_json_space(c)) return Step::more;
  switch (state_) {
    case State::before_object:
      if (c != '{') return Step::over;
      state_ = State::before_key;
      return Step::more;
    case State::before_key:
      if (c == '}') return end_object(arguments);
      if (c != '"') return unexpected(c);
      literal_ = c;
      state_ = State::in_key;
      return Step::more;
    case State::before_colon:
      if (c != ':') return unexpected(c);
      state_ = State::before_value;
      return Step::more;
    case State::before_value:
      return begin_value(c, arguments);
    case State::after_value:
      if (c == '}') return end_object(arguments);
      if (c != ',') return unexpected(c);
      state_ = State::before_key;
      return Step::more;
    case State::after_object:
      return c == '}' ? Step::more : unexpected(c);
    case State::in_key:
    case State::in_value:
    case State::in_tag:
      break;
  }
  return Step::over;
}

// Between two parts of a call whose arguments are there, only the closing tag may come early.
ToolCallScanner::Step ToolCallScanner::unexpected(char c) {
  if (!announced_ || c != kToolCallClose[0]) return Step::over;
  state_ = State::in_tag;
  tag_matched_ = 1;
  return Step::more;
}

ToolCallScanner::Member ToolCallScanner::member_of_key() const {
  if (literal_ == R"("name")" && name_.empty()) return Member::name;
  if (literal_ == R"("arguments")" && !has_arguments_) return Member::arguments;
  return Member::other;
}

ToolCallScanner::Step ToolCallScanner::begin_value(char c, std::string& arguments) {
  if (c == '"') {
    kind_ = Kind::string;
  } else if (c == '{' || c == '[') {
    kind_ = Kind::container;
  } else if (is_scalar_char(c)) {
    kind_ = Kind::scalar;
  } else {
    return unexpected(c);
  }
  if (member_ == Member::name && kind_ != Kind::string) return Step::over;
  if (member_ == Member::arguments) {
    has_arguments_ = true;
    announced_ = !name_.empty();
  }
  literal_.clear();
  state_ = State::in_value;
  return continue_value(c, arguments);
}

ToolCallScanner::Step ToolCallScanner::continue_value(char c, std::string& arguments) {
  if (in_string_) {
    keep(c, arguments);
    in_string_ = !ends_string(c);
    return in_string_ || depth_ > 0 ? Step::more : end_value(arguments);
  }
  if (kind_ == Kind::scalar && !is_scalar_char(c)) {
    const Step ended = end_value(arguments);
    return ended == Step::more ? push(c, arguments) : ended;
  }
  keep(c, arguments);
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') --depth_;
  return kind_ == Kind::container && depth_ == 0 ? end_value(arguments) : Step::more;
}

bool ToolCallScanner::ends_string(char c) {
  if (escaped_) {
    escaped_ = false;
    return false;
  }
  escaped_ = c == '\\';
  return c == '"';
}

ToolCallScanner::Step ToolCallScanner::end_value(std::string& arguments) {
  state_ = State::after_value;
  if (member_ == Member::name) {
    name_ = decoded(literal_);
    if (name_.empty()) return Step::over;
    if (has_arguments_) {
      announced_ = true;
      arguments += arguments_;
    }
  } else if (member_ == Member::arguments && kind_ == Kind::scalar) {
    pass_on(literal_ == "null" ? "{}" : literal_, arguments);
  } else if (member_ == Member::arguments && kind_ == Kind::string) {
    const std::string text = decoded(literal_);
    pass_on(!text.empty() ? text : literal_ == R"("")" ? "{}" : literal_, arguments);
  }
  return Step::more;
}

ToolCallScanner::Step ToolCallScanner::end_object(std::string& arguments) {
  if (name_.empty()) return Step::over;
  if (!announced_) {
    announced_ = true;
    pass_on("{}", arguments);
  }
  state_ = State::after_object;
  return Step::more;
}

void ToolCallScanner::keep(char c, std::string& arguments) {
  if (member_ == Member::arguments && kind_ == Kind::container) {
    pass_on({&c, 1}, arguments);
  } else if (member_ != Member::other) {
    literal_ += c;
  }
}

void ToolCallScanner::pass_on(std::string_view text, std::string& arguments) {
  arguments_ += text;
  if (announced_) arguments += text;
}

bool ToolCallScanner::has_object() const {
  const auto first = arguments_.find_first_not_of(" \n\t\r");
  return first != std::string::npos && arguments_[first] == '{' &&
         nlohmann::json::accept(arguments_);
}

}  // namespace kipp
