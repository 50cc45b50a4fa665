#include "server/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>

namespace kipp {

Result<std::shared_ptr<Log>> Log::open(const std::string& name, const std::string& target) {
  spdlog::sink_ptr sink;
  if (target == "off") {
    sink = std::make_shared<spdlog::sinks::null_sink_mt>();
  } else if (target == "-") {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(target);
    } catch (const spdlog::spdlog_ex& error) {
      return fail(ErrorCode::io, "{}: expected a file that can be written, found: {}", name,
                  error.what());
    }
  }
  auto logger = std::make_shared<spdlog::logger>(name, std::move(sink));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  logger->flush_on(spdlog::level::info);
  return std::shared_ptr<Log>(new Log(std::move(logger)));
}

void Log::line(const std::string& text) { logger_->info(text); }

std::string log_value(std::string_view text) {
  const auto plain = [](unsigned char c) { return c > ' ' && c != '"' && c != '\\' && c != 0x7f; };
  if (!text.empty() && std::ranges::all_of(text, plain)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace kipp
