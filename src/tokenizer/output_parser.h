// What a chat model writes, taken apart while it is written: reasoning between <think> tags, tool
// calls in the Hermes form, and the rest, which is content.
//
// Reasoning: a think block counts only as the very first thing of an answer, or where the prompt
// has opened it (Thinking-2507); newlines directly after <think> and around </think> belong to the
// tags, and an answer that is cut before </think> is reasoning to its end, but for newlines there.
//
// Calls: <tool_call>, a JSON object with "name" and "arguments", </tool_call>. The one newline
// before the tag belongs to it, as the templates write it; so does white space between a call and
// the next, and between the last one and the end. What proves to be no call before its name is
// known is content, its tag included, and so is what follows a call that is broken off later.
//
// Emitted text can not be taken back, so text that could still become a tag waits. What is emitted
// in all depends on the whole text alone, not on how it was split.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kipp {

struct ParsedDelta {
  // A call is announced once, with its name, as soon as its arguments begin; they follow in pieces,
  // which joined are the JSON text as the model wrote it ("{}" where it wrote none or null, the
  // text inside where it wrote a string).
  struct ToolPiece {
    int index = 0;        // of the call within the answer, from 0
    bool begins = false;  // with `name`
    std::string name;
    std::string arguments;
  };
  std::string reasoning;
  std::string content;
  std::vector<ToolPiece> tools;  // at most one of each call

  bool empty() const { return reasoning.empty() && content.empty() && tools.empty(); }
  // Both, one after the other.
  void append(ParsedDelta&& later);
};

class OutputParser {
 public:
  struct Setting {
    bool starts_in_thinking = false;
    bool splits_reasoning = false;  // else <think> is text, unless the answer starts in thinking
    bool parses_tools = false;      // else <tool_call> is text
  };
  explicit OutputParser(const Setting& setting);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  // Whole UTF-8 characters, as TextStream gives them.
  ParsedDelta push(std::string_view text);
  // The end of the answer: what waited. A call that was cut before its name was known is content.
  ParsedDelta finish();

  // Whether what comes next would be reasoning; after finish(), whether the answer was cut in it.
  bool in_reasoning() const;
  // Whether there was a think block, be it empty or cut.
  bool has_reasoning() const;

  // Calls whose arguments were a JSON object and whose closing tag was seen, and all calls that
  // were announced.
  int complete_calls() const;
  int announced_calls() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kipp
