// Lines for whoever runs the server: time, level, what happened, key=value pairs. Values that hold
// spaces, quotes or control characters are quoted, so that a client cannot forge a line.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/types.h"

namespace spdlog {
class logger;  // its header takes seconds to compile
}

namespace kipp {

class Log {
 public:
  // "-": standard error; "off": nowhere; else a file, appended to. `name`: of the flag, for errors.
  static Result<std::shared_ptr<Log>> open(const std::string& name, const std::string& target);

  // From any thread.
  void line(const std::string& text);

 private:
  explicit Log(std::shared_ptr<spdlog::logger> logger) : logger_(std::move(logger)) {}

  const std::shared_ptr<spdlog::logger> logger_;
};

// As it is where it is plain, else in double quotes with escapes.
std::string log_value(std::string_view text);

}  // namespace kipp
