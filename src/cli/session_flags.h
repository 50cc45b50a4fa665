// `--save-session` and `--load-session`: a session's file (engine/session_file.h) from the command
// line. A file changes how much of a prompt is evaluated and nothing else; one that is damaged or
// another model's is refused before anything is generated, and nothing is written over unless the
// run succeeded.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "engine/session.h"

namespace kipp {

struct SessionFlags {
  std::optional<std::string> save;
  std::optional<std::string> load;
  bool go_on = false;  // the prompt follows what was loaded
};

void add_session_flags(CLI::App& command, SessionFlags& flags);

// Before a model is opened: refuses what cannot be, and says how many tokens the file to load
// holds.
Result<int> saved_tokens(const SessionFlags& flags);

// Loads the file, if one is named. The prompt as it is to be evaluated: itself, or where it is to
// go on, behind the loaded tokens.
Result<std::vector<Token>> load_session(const SessionFlags& flags, Session& session,
                                        std::vector<Token> prompt);

// Writes the file, if one is named.
Result<void> save_session(const SessionFlags& flags, Session& session);

}  // namespace kipp
