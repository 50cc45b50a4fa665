// Lines from a person: with editing and history on a terminal, as they come from a pipe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace kipp {

class LineReader {
 public:
  LineReader();
  ~LineReader();

  // end: nothing more will come. interrupted: Ctrl-C at the terminal; what was typed is gone.
  enum class Outcome : std::uint8_t { line, end, interrupted };
  // `line` comes without its newline. The prompt is shown on a terminal only.
  Outcome read(std::string& line);

  bool terminal() const { return editor_ != nullptr; }

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;  // null on pipes
};

}  // namespace kipp
