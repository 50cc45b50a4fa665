// Lets the Python tests download from a server of their own. Reads one JSON object from standard
// input:
// {"endpoint", "token", "repository", "revision", "directory", "files": [{"name", "bytes",
// "sha256"}], "options": {times in milliseconds}}. Prints what came of it as JSON. SIGINT cancels.
#include <csignal>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "convert/hub.h"

namespace {

using Json = nlohmann::json;

std::atomic<bool> g_cancel{false};

kipp::DownloadPlan plan_of(const Json& in) {
  kipp::DownloadPlan plan{.endpoint = in.at("endpoint"),
                          .token = in.value("token", ""),
                          .ca_file = in.value("ca_file", ""),
                          .repository = in.at("repository"),
                          .revision = in.at("revision"),
                          .directory = in.at("directory").get<std::string>(),
                          .files = {}};
  for (const Json& file : in.at("files")) {
    plan.files.push_back({file.at("name"), file.value("bytes", std::uint64_t{0}),
                          file.value("sha256", std::string())});
  }
  return plan;
}

kipp::DownloadOptions options_of(const Json& in) {
  kipp::DownloadOptions options;
  const auto set = [&](const char* name, std::chrono::milliseconds& value) {
    if (in.contains(name)) value = std::chrono::milliseconds(in.at(name).get<int>());
  };
  set("first_wait", options.first_wait);
  set("longest_wait", options.longest_wait);
  set("longest_retry_after", options.longest_retry_after);
  set("connect_timeout", options.connect_timeout);
  set("stall_timeout", options.stall_timeout);
  options.attempts = in.value("attempts", options.attempts);
  options.progress_bytes = in.value("progress_bytes", options.progress_bytes);
  options.cancel = &g_cancel;
  return options;
}

}  // namespace

int main() {
  std::signal(SIGINT, [](int) { g_cancel = true; });
  const Json in = Json::parse(std::cin);
  Json notes = Json::array();
  Json progress = Json::object();
  kipp::DownloadOptions options = options_of(in.value("options", Json::object()));
  options.note = [&](const std::string& line) { notes.push_back(line); };
  options.progress = [&](std::string_view label, std::uint64_t done, std::uint64_t total) {
    progress[std::string(label)] = {done, total};
  };
  const auto result = kipp::download(plan_of(in), options);
  Json out{{"ok", result.has_value()}, {"notes", notes}, {"progress", progress}};
  if (result) {
    for (const auto& file : *result) {
      out["files"][file.name] = {{"bytes", file.bytes},
                                 {"sha256", file.sha256},
                                 {"verified", file.verified},
                                 {"present", file.present}};
    }
  } else {
    out["error"] = result.error().message;
    out["code"] = static_cast<int>(result.error().code);
  }
  std::puts(out.dump().c_str());
  return result ? 0 : 1;
}
