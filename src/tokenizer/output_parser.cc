#include "tokenizer/output_parser.h"

#include <cstdint>
#include <iterator>
#include <utility>

#include "tokenizer/tool_call_scanner.h"

namespace kipp {
namespace {

constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";

}  // namespace

void ParsedDelta::append(ParsedDelta&& later) {
  reasoning += later.reasoning;
  content += later.content;
  for (ToolPiece& piece : later.tools) {
    // Calls do not overlap, so only the last one can go on.
    if (!tools.empty() && tools.back().index == piece.index) {
      tools.back().arguments += piece.arguments;
    } else {
      tools.push_back(std::move(piece));
    }
  }
}

// All tags begin with '<' and have no other, so a tag that fails to go on leaves nothing behind
// that another could begin in, but for the character it failed on.
struct OutputParser::Impl {
  enum class State : std::uint8_t {
    start,
    after_think_open,  // newlines are dropped
    reasoning,
    after_think_close,  // newlines are dropped
    content,
    call,
    after_call,  // white space waits
  };

  explicit Impl(const Setting& given)
      : setting(given),
        state(given.splits_reasoning || given.starts_in_thinking ? State::start : State::content),
        has_reasoning(given.starts_in_thinking) {}

  void feed(char c, ParsedDelta& out) {
    switch (state) {
      case State::start:
        if (grow(kThinkOpen, c)) {
          if (whole(kThinkOpen)) enter(State::after_think_open);
        } else {
          leave_start(out);
          feed(c, out);
        }
        break;
      case State::after_think_open:
      case State::after_think_close:
        if (c == '\n') break;
        state = state == State::after_think_open ? State::reasoning : State::content;
        feed(c, out);
        break;
      case State::reasoning:
        if (grow(kThinkClose, c)) {
          if (whole(kThinkClose)) enter(State::after_think_close);
        } else if (tag_matched > 0) {
          release(out.reasoning);
          feed(c, out);
        } else {
          held += c;  // newlines before the closing tag wait for it, however many
          if (c != '\n') release(out.reasoning);
        }
        break;
      case State::content:
        feed_content(c, out);
        break;
      case State::call:
        feed_call(c, out);
        break;
      case State::after_call:
        if (grow(kToolCallOpen, c)) {
          if (whole(kToolCallOpen)) begin_call();
        } else if (tag_matched == 0 && is_json_space(c)) {
          held += c;
        } else {
          state = State::content;
          again(out);
          feed(c, out);
        }
        break;
    }
  }

  void feed_content(char c, ParsedDelta& out) {
    if (!setting.parses_tools) {
      out.content += c;
    } else if (grow(kToolCallOpen, c)) {
      if (whole(kToolCallOpen)) begin_call();
    } else if (tag_matched > 0) {
      release(out.content);
      feed_content(c, out);
    } else {
      release(out.content);  // a newline that another character follows
      (c == '\n' ? held : out.content) += c;
    }
  }

  void feed_call(char c, ParsedDelta& out) {
    std::string arguments;
    const bool known = scanner.announced();
    const ToolCallScanner::Step step = scanner.push(c, arguments);
    if (scanner.announced()) {
      if (!known) {
        out.tools.push_back({announced++, true, scanner.name(), {}});
        held.clear();
      }
      if (!arguments.empty()) append_arguments(arguments, out);
    } else if (step == ToolCallScanner::Step::more) {
      held += c;
    }
    if (step == ToolCallScanner::Step::closed) {
      if (scanner.has_object()) ++complete;
      enter(State::after_call);
    } else if (step == ToolCallScanner::Step::over) {
      release(out.content);
      enter(State::content);
      for (const char taken : scanner.tag_so_far()) feed(taken, out);
      feed(c, out);
    }
  }

  void append_arguments(const std::string& arguments, ParsedDelta& out) {
    const int index = announced - 1;
    if (out.tools.empty() || out.tools.back().index != index) {
      out.tools.push_back({index, false, {}, {}});
    }
    out.tools.back().arguments += arguments;
  }

  void finish(ParsedDelta& out) {
    if (state == State::start) leave_start(out);
    if (state == State::reasoning && tag_matched > 0) release(out.reasoning);
    if (state == State::content || state == State::call) release(out.content);
    if (state == State::after_call && tag_matched > 0) release(out.content);
    held.clear();
  }

  // Takes c as the next character of a tag that may have begun, or that it begins.
  bool grow(std::string_view tag, char c) {
    if (c != tag[tag_matched]) return false;
    held += c;
    ++tag_matched;
    return true;
  }
  bool whole(std::string_view tag) const { return tag_matched == tag.size(); }

  void enter(State next) {
    if (next == State::after_think_open) has_reasoning = true;
    state = next;
    held.clear();
    tag_matched = 0;
  }
  // What stands before the call and its tag stay: they are content if it proves to be none.
  void begin_call() {
    state = State::call;
    tag_matched = 0;
    scanner = {};
  }
  void release(std::string& out) {
    out += held;
    held.clear();
    tag_matched = 0;
  }
  // What waited is read anew, in the state that is now.
  void again(ParsedDelta& out) {
    tag_matched = 0;
    for (const char c : std::exchange(held, {})) feed(c, out);
  }
  void leave_start(ParsedDelta& out) {
    state = setting.starts_in_thinking ? State::after_think_open : State::content;
    again(out);
  }

  const Setting setting;
  State state;
  bool has_reasoning;
  std::string held;             // may still be a tag's, or a call's while its name is not known
  std::size_t tag_matched = 0;  // the last characters of `held` that a tag begins with
  ToolCallScanner scanner;      // of the call that is open
  int announced = 0;
  int complete = 0;
};

OutputParser::OutputParser(const Setting& setting) : impl_(std::make_unique<Impl>(setting)) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

ParsedDelta OutputParser::push(std::string_view text) {
  ParsedDelta out;
  for (const char c : text) impl_->feed(c, out);
  return out;
}

ParsedDelta OutputParser::finish() {
  ParsedDelta out;
  impl_->finish(out);
  return out;
}

bool OutputParser::in_reasoning() const {
  using State = Impl::State;
  return impl_->state == State::reasoning || impl_->state == State::after_think_open ||
         (impl_->state == State::start && impl_->setting.starts_in_thinking);
}

bool OutputParser::has_reasoning() const { return impl_->has_reasoning; }
int OutputParser::complete_calls() const { return impl_->complete; }
int OutputParser::announced_calls() const { return impl_->announced; }

}  // namespace kipp
