// One tool call in the Hermes form, read character by character from behind <tool_call>:
//
//     {"name": "f", "arguments": {...}} </tool_call>
//
// A scanner, not a parser: it knows strings, escapes and depth, which is what it takes to find
// where the arguments begin and end while they are still being written. Whether they are JSON is
// asked once, at the end. Members may come in any order; of two with one name the first counts, and
// all others are passed over. Forgiven, because models do it: a brace too few or too many at the
// end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kipp {

inline constexpr std::string_view kToolCallOpen = "<tool_call>";
inline constexpr std::string_view kToolCallClose = "</tool_call>";

constexpr bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

class ToolCallScanner {
 public:
  enum class Step : std::uint8_t {
    more,
    closed,  // with this character the closing tag is complete
    over,    // this character belongs to no call: nothing more is taken, nor was it
  };
  // Appends to `arguments` what is certain of them, from the moment the call is announced.
  Step push(char c, std::string& arguments);

  // The name is known and the arguments have begun, or there are none. Not undone.
  bool announced() const { return announced_; }
  const std::string& name() const { return name_; }
  // Whether all that was passed on as arguments is a JSON object.
  bool has_object() const;
  // What was taken of the closing tag so far.
  std::string_view tag_so_far() const { return kToolCallClose.substr(0, tag_matched_); }

 private:
  enum class State : std::uint8_t {
    before_object,
    before_key,
    in_key,
    before_colon,
    before_value,
    in_value,
    after_value,
    after_object,
    in_tag,
  };
  enum class Member : std::uint8_t { name, arguments, other };
  enum class Kind : std::uint8_t { string, container, scalar };

  Step unexpected(char c);
  Member member_of_key() const;
  Step begin_value(char c, std::string& arguments);
  Step continue_value(char c, std::string& arguments);
  bool ends_string(char c);
  Step end_value(std::string& arguments);
  Step end_object(std::string& arguments);
  void keep(char c, std::string& arguments);
  void pass_on(std::string_view text, std::string& arguments);

  State state_ = State::before_object;
  Member member_ = Member::other;  // whose value it is
  Kind kind_ = Kind::scalar;       // of the value
  int depth_ = 0;                  // open brackets of the value
  bool in_string_ = false;
  bool escaped_ = false;  // the next character of a string stands for itself
  std::string literal_;   // a key, the name, arguments that are no container
  std::string name_;      // empty: not known yet
  bool has_arguments_ = false;
  std::string arguments_;  // so far
  bool announced_ = false;
  std::size_t tag_matched_ = 0;
};

}  // namespace kipp
