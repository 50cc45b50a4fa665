#include "cli/serve_flags.h"

#include <algorithm>
#include <cstdlib>

#include "cli/flag_values.h"
#include "cli/text_file.h"

namespace kipp {
namespace {

Result<int> number(std::string_view flag, const std::string& text, int low, int high) {
  KIPP_TRY_ASSIGN(value, parse_int(flag, text));
  if (value < low || value > high) {
    return fail(ErrorCode::invalid, "{}: expected {} to {}, found {}", flag, low, high, value);
  }
  return value;
}

// Seconds; fractions are welcome.
Result<std::chrono::milliseconds> duration(std::string_view flag, const std::string& text) {
  KIPP_TRY_ASSIGN(value, parse_float(flag, text));
  constexpr float kMost = 1e6f;
  if (!(value >= 0 && value <= kMost)) {
    return fail(ErrorCode::invalid, "{}: expected 0 to {} seconds, found {}", flag, kMost, text);
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(value * 1000));
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// One key per line; empty lines and lines that begin with # say nothing.
Result<void> read_keys(const std::string& path, std::vector<std::string>& keys) {
  KIPP_TRY_ASSIGN(text, read_text_file(path));
  const std::size_t before = keys.size();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(std::move(line));
    at = end + 1;
  }
  if (keys.size() > before) return {};
  return fail(ErrorCode::invalid, "--api-key-file: expected a key in {}, found none", path);
}

Result<std::vector<std::string>> api_keys(const ServeFlags& flags) {
  std::vector<std::string> keys = flags.api_keys;
  if (flags.api_key_file) KIPP_TRY(read_keys(*flags.api_key_file, keys));
  if (const char* key = std::getenv("KIPP_API_KEY"); key && *key) keys.emplace_back(key);
  for (const std::string& key : keys) {
    const auto sendable = [](unsigned char c) { return c > ' ' && c < 0x7f; };
    if (key.empty() || !std::ranges::all_of(key, sendable)) {
      return fail(ErrorCode::invalid,
                  "--api-key: expected printable characters without spaces, found something else");
    }
  }
  return keys;
}

Result<AccessRules> access_rules(const ServeFlags& flags) {
  AccessRules rules;
  KIPP_TRY_ASSIGN(keys, api_keys(flags));
  rules.api_keys = keys;
  for (const std::string& origin : flags.cors_origins) {
    const auto scheme = origin.find("://");
    if (origin != "*" && (scheme == std::string::npos || origin.ends_with('/'))) {
      return fail(ErrorCode::invalid,
                  "--cors-origin: expected * or one such as https://example.org, found \"{}\"",
                  origin);
    }
  }
  rules.cors_origins = flags.cors_origins;
  if (is_loopback(flags.host) || !flags.allowed_hosts.empty()) rules.hosts = loopback_hosts();
  for (std::string host : flags.allowed_hosts) {
    std::ranges::transform(host, host.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    rules.hosts.push_back(std::move(host));
  }
  return rules;
}

Result<HttpLimits> http_limits(const ServeFlags& flags) {
  HttpLimits limits;
  KIPP_TRY_ASSIGN(connections, number("--max-connections", flags.max_connections, 1, 1 << 20));
  limits.max_connections = connections;
  KIPP_TRY_ASSIGN(body, parse_bytes("--max-body", flags.max_body));
  if (body < 1024) {
    return fail(ErrorCode::invalid, "--max-body: expected at least 1KiB, found {}", flags.max_body);
  }
  limits.max_body_bytes = body;
  KIPP_TRY_ASSIGN(request, duration("--request-timeout", flags.request_timeout));
  KIPP_TRY_ASSIGN(idle, duration("--idle-timeout", flags.idle_timeout));
  for (const auto& [flag, time] :
       {std::pair{"--request-timeout", request}, std::pair{"--idle-timeout", idle}}) {
    if (time.count() > 0) continue;
    return fail(ErrorCode::invalid, "{}: expected more than 0 seconds, found 0", flag);
  }
  limits.request_timeout = request;
  limits.write_timeout = request;
  limits.idle_timeout = idle;
  return limits;
}

}  // namespace

void add_serve_flags(CLI::App& command, ServeFlags& flags) {
  add_model_flags(command, flags.model);
  add_speculation_flags(command, flags.speculation);
  command.add_option("--name", flags.name, "What clients call the model. Default: its id.");
  const auto text = [&](const char* flag, std::string& value, const char* type, const char* help) {
    command.add_option(flag, value, help)->type_name(type)->capture_default_str();
  };
  text("--host", flags.host, "ADDRESS", "Where to listen; 0.0.0.0 or :: for the whole network.");
  text("--port", flags.port, "NUMBER", "0 takes a free one.");
  command
      .add_option("--api-key", flags.api_keys,
                  "Ask clients for this key; may be given several times. Also taken from the "
                  "environment variable KIPP_API_KEY.")
      ->type_name("KEY");
  command.add_option("--api-key-file", flags.api_key_file, "Keys, one per line.")
      ->type_name("FILE");
  command
      .add_option("--cors-origin", flags.cors_origins,
                  "Let pages of this origin read answers; * for all. May be given several times.")
      ->type_name("ORIGIN");
  command
      .add_option("--allowed-host", flags.allowed_hosts,
                  "Answer to this name too. On a loopback address only localhost is answered, "
                  "elsewhere any name unless this is given.")
      ->type_name("NAME");
  command
      .add_option("--kv-memory", flags.kv_memory,
                  "Memory for keys and values of all requests. Default: a quarter of what is free, "
                  "at most eight full contexts.")
      ->type_name("SIZE");
  command
      .add_option("--session-dir", flags.session_dir,
                  "Keep what was computed of prompts here too, so that it survives a restart. It "
                  "holds what users wrote; one server to a directory.")
      ->type_name("DIR");
  text("--session-budget", flags.session_budget, "SIZE",
       "The most of it that is kept; what was used least recently goes.");
  text("--max-sequences", flags.max_sequences, "NUMBER", "Choices that are generated at once.");
  text("--max-queue", flags.max_queue, "NUMBER",
       "Choices that may wait; beyond them clients get 429.");
  text("--max-connections", flags.max_connections, "NUMBER", "Open connections.");
  text("--max-body", flags.max_body, "SIZE", "The longest request.");
  text("--request-timeout", flags.request_timeout, "SECONDS",
       "For a client to send its request, or to take a byte of its answer.");
  text("--idle-timeout", flags.idle_timeout, "SECONDS", "Between two requests of a connection.");
  text("--generation-timeout", flags.generation_timeout, "SECONDS",
       "For one answer, waiting included; 0: none.");
  text("--drain-timeout", flags.drain_timeout, "SECONDS",
       "How long answers under way may go on after SIGTERM.");
  text("--heartbeat-limit", flags.heartbeat_limit, "SECONDS",
       "/health is 503 when the engine was silent for longer, which one step never should be.");
  text("--access-log", flags.access_log, "FILE",
       "A line per request; - is standard error, off none.");
  text("--metrics-compat", flags.metrics_compat, "NAME",
       "vllm: give what routers and dashboards read under vLLM's names as well.");
}

Result<ServeSettings> read_settings(const ServeFlags& flags) {
  ServeSettings settings;
  KIPP_TRY(load_options(flags.model));
  KIPP_TRY(check(flags.speculation));
  KIPP_TRY_ASSIGN(port, number("--port", flags.port, 0, 65535));
  settings.port = port;
  KIPP_TRY_ASSIGN(limits, http_limits(flags));
  settings.http = limits;
  KIPP_TRY_ASSIGN(sequences, number("--max-sequences", flags.max_sequences, 1, 1 << 16));
  settings.engine.max_sequences = sequences;
  KIPP_TRY_ASSIGN(queue, number("--max-queue", flags.max_queue, 0, 1 << 20));
  settings.engine.max_queue = queue;
  if (flags.model.context) {
    KIPP_TRY_ASSIGN(context, number("--context", *flags.model.context, 1, 1 << 30));
    settings.context = context;
  }
  KIPP_TRY_ASSIGN(kv, KvPolicy::parse(flags.model.kv));
  settings.kv = kv;
  if (flags.kv_memory) {
    KIPP_TRY_ASSIGN(bytes, parse_bytes("--kv-memory", *flags.kv_memory));
    settings.kv_bytes = bytes;
  }
  KIPP_TRY_ASSIGN(budget, parse_bytes("--session-budget", flags.session_budget));
  settings.session_budget = budget;
  settings.session_dir = flags.session_dir;
  KIPP_TRY_ASSIGN(rules, access_rules(flags));
  settings.service.access = rules;
  if (flags.metrics_compat != "none" && flags.metrics_compat != "vllm") {
    return fail(ErrorCode::invalid, "--metrics-compat: expected none or vllm, found \"{}\"",
                flags.metrics_compat);
  }
  settings.service.vllm_names = flags.metrics_compat == "vllm";
  KIPP_TRY_ASSIGN(generation, duration("--generation-timeout", flags.generation_timeout));
  settings.service.generation_timeout = generation;
  KIPP_TRY_ASSIGN(heartbeat, duration("--heartbeat-limit", flags.heartbeat_limit));
  settings.service.heartbeat_limit = heartbeat;
  KIPP_TRY_ASSIGN(drain, duration("--drain-timeout", flags.drain_timeout));
  settings.drain_timeout = drain;
  KIPP_TRY_ASSIGN(log, Log::open("--access-log", flags.access_log));
  settings.service.access_log = log;
  return settings;
}

}  // namespace kipp
