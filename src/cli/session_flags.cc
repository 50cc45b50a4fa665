#include "cli/session_flags.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/progress.h"
#include "engine/session_file.h"

namespace kipp {
namespace {

// A file that is not what it should be is a bad value of its flag.
tl::unexpected<Error> bad_file(Error error) {
  if (error.code == ErrorCode::refused || error.code == ErrorCode::exhausted) {
    error.code = ErrorCode::invalid;
  }
  error.message.insert(0, "--load-session: ");
  return tl::unexpected(std::move(error));
}

class FileProgress {
 public:
  explicit FileProgress(const char* label) : bar_(label, ProgressUnit::bytes) {}
  ByteProgress callback() {
    return [this](std::uint64_t done, std::uint64_t total) { bar_.update(done, total); };
  }
  void finish() { bar_.finish(); }

 private:
  ProgressBar bar_;
};

}  // namespace

void add_session_flags(CLI::App& command, SessionFlags& flags) {
  command
      .add_option("--save-session", flags.save,
                  "When the run has succeeded, write its tokens with their keys and values here.")
      ->type_name("FILE");
  CLI::Option* load =
      command
          .add_option("--load-session", flags.load,
                      "Begin with what was saved there: what the prompt has in common with it is "
                      "not evaluated again.")
          ->type_name("FILE");
  command
      .add_flag("--continue", flags.go_on,
                "The prompt, which may be empty, goes on where the loaded session ends.")
      ->needs(load);
}

Result<int> saved_tokens(const SessionFlags& flags) {
  std::error_code ignored;
  if (flags.save && std::filesystem::is_directory(*flags.save, ignored)) {
    return fail(ErrorCode::invalid,
                "--save-session: expected the name of a file to write, found a directory: {}",
                *flags.save);
  }
  if (!flags.load) return 0;
  auto header = read_session_header(*flags.load);
  if (!header) return bad_file(std::move(header).error());
  constexpr std::uint32_t kMost = 1 << 24;  // beyond every checkpoint's context
  if (header->tokens == 0 && flags.go_on) {
    return fail(ErrorCode::invalid, "--continue: expected a session with tokens in {}, found none",
                *flags.load);
  }
  return static_cast<int>(std::min(header->tokens, kMost));
}

Result<std::vector<Token>> load_session(const SessionFlags& flags, Session& session,
                                        std::vector<Token> prompt) {
  if (!flags.load) return prompt;
  FileProgress progress("loading the session");
  auto restored = session.restore(*flags.load, progress.callback());
  if (!restored) return bad_file(std::move(restored).error());
  progress.finish();
  if (flags.go_on) prompt.insert(prompt.begin(), session.tokens().begin(), session.tokens().end());
  return prompt;
}

Result<void> save_session(const SessionFlags& flags, Session& session) {
  if (!flags.save) return {};
  FileProgress progress("saving the session");
  auto saved = session.save(*flags.save, progress.callback());
  if (!saved) {
    saved.error().message.insert(0, "--save-session: ");
    return tl::unexpected(std::move(saved).error());
  }
  progress.finish();
  return {};
}

}  // namespace kipp
