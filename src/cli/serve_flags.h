// The flags of `kipp serve`, and the checked settings they mean.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/model_flags.h"
#include "cli/speculation_flags.h"
#include "engine/engine.h"
#include "server/http_server.h"
#include "server/service.h"

namespace kipp {

// As written on the command line.
struct ServeFlags {
  ModelFlags model;
  SpeculationFlags speculation;
  std::optional<std::string> name;
  std::string host = "127.0.0.1";
  std::string port = "8080";
  std::vector<std::string> api_keys;
  std::optional<std::string> api_key_file;
  std::vector<std::string> cors_origins;
  std::vector<std::string> allowed_hosts;
  std::optional<std::string> kv_memory;
  std::string max_sequences = "32";
  std::string max_queue = "256";
  std::string max_connections = "1024";
  std::string max_body = "16MiB";
  std::string request_timeout = "30";
  std::string idle_timeout = "120";
  std::string generation_timeout = "0";
  std::string drain_timeout = "30";
  std::string heartbeat_limit = "60";
  std::string access_log = "-";
  std::optional<std::string> session_dir;
  std::string session_budget = "10GiB";
  std::string metrics_compat = "none";
};

void add_serve_flags(CLI::App& command, ServeFlags& flags);

struct ServeSettings {
  int port = 0;
  HttpLimits http;
  EngineOptions engine;
  ServiceOptions service;
  std::optional<std::uint64_t> kv_bytes;
  KvPolicy kv;
  std::optional<int> context;
  std::optional<std::string> session_dir;
  std::uint64_t session_budget = 0;  // bytes
  std::chrono::milliseconds drain_timeout{0};
};

// Everything that can be known before a model is opened. Keys come from the flags, the file and the
// environment variable KIPP_API_KEY.
Result<ServeSettings> read_settings(const ServeFlags& flags);

}  // namespace kipp
