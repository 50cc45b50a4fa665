// Lines for whoever runs the server: time, level, what happened, key=value pairs. Values that hold
// spaces, quotes or control characters are quoted, so that a client cannot forge a line.
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/types.h"

namespace kipp {

// "-": standard error; "off": nowhere; else a file, appended to.
Result<std::shared_ptr<spdlog::logger>> open_log(const std::string& name,
                                                 const std::string& target);

// As it is where it is plain, else in double quotes with escapes.
std::string log_value(std::string_view text);

}  // namespace kipp
