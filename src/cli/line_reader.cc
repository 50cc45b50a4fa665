#include "cli/line_reader.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <iostream>

#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace kipp {
namespace {

constexpr int kHistoryLines = 500;
char* prompt_text(EditLine*) {
  static char text[] = "> ";
  return text;
}

// One character for libedit, or -1 when the user asked to stop. libedit's own reader repeats a read
// that a signal ended; and a signal between the look at the flag and the read would be missed, so
// the wait is short.
int read_character(EditLine*, wchar_t* out) {
  constexpr int kWaitMs = 200;
  std::mbstate_t state{};
  while (!Interrupt::requested()) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&input, 1, kWaitMs) <= 0) continue;
    char byte = 0;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n == 0) return 0;
    if (n < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return -1;
    }
    // What is left of a Ctrl-D typed while an answer ran; libedit would quote the next key.
    if (byte == '\0') continue;
    const std::size_t used = std::mbrtowc(out, &byte, 1, &state);
    if (used == static_cast<std::size_t>(-1)) {
      state = {};  // not a character: dropped
    } else if (used != static_cast<std::size_t>(-2)) {
      return 1;
    }
  }
  return -1;
}

}  // namespace

struct LineReader::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;

  Editor() {
    // libedit works in the locale's characters.
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    line = ::el_init("kipp", stdin, stdout, stderr);
    history = ::history_init();
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    ::el_set(line, EL_HIST, ::history, history);
    ::el_set(line, EL_EDITOR, "emacs");
    ::el_set(line, EL_PROMPT, prompt_text);
    ::el_set(line, EL_GETCFN, read_character);
  }
  ~Editor() {
    ::el_end(line);
    ::history_end(history);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;
};

LineReader::LineReader() {
  if (stdin_is_terminal() && stdout_is_terminal()) editor_ = std::make_unique<Editor>();
}
LineReader::~LineReader() = default;

LineReader::Outcome LineReader::read(std::string& line) {
  if (!terminal()) {
    return std::getline(std::cin, line) ? Outcome::line : Outcome::end;
  }
  const Interrupt interrupt;
  int length = 0;
  const char* text = ::el_gets(editor_->line, &length);
  if (Interrupt::requested()) {
    write_out("\n");
    return Outcome::interrupted;
  }
  if (text == nullptr || length <= 0) {
    write_out("\n");
    return Outcome::end;
  }
  line.assign(text, static_cast<std::size_t>(length));
  if (line.ends_with('\n')) line.pop_back();
  if (!line.empty()) {
    HistEvent event;
    ::history(editor_->history, &event, H_ENTER, line.c_str());
  }
  return Outcome::line;
}

}  // namespace kipp
