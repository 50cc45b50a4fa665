// `kipp devices`: what each backend can compute on here, as a table or JSON. A backend that finds
// nothing, or that this build lacks, is no failure: its row says why.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "backend/registry.h"
#include "cli/commands.h"

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::array<std::string, 10>;

// As a person compares it; "-" where the driver does not say.
std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  if (bytes == 0) return "-";
  // WebGPU's limits may be "as many as a number can hold".
  if (bytes >= kGiB * kGiB) return "any";
  if (bytes < kGiB) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

Row row_of(std::string_view backend, std::size_t index, const DeviceFacts& device) {
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  const auto yes_no = [](bool has) { return has ? "yes" : "no"; };
  return {std::string(backend),
          fmt::format("{}", index),
          or_dash(device.name),
          or_dash(device.api),
          or_dash(device.type),
          size_text(device.memory_bytes),
          size_text(device.max_buffer_bytes),
          size_text(device.max_binding_bytes),
          fmt::format("{}, {}", yes_no(device.f16), yes_no(device.subgroups)),
          or_dash(device.driver)};
}

void print_table(const std::vector<BackendDevices>& found) {
  std::vector<Row> rows = {{"backend", "index", "name", "api", "type", "memory", "largest buffer",
                            "binding", "f16, subgroups", "driver"}};
  for (const BackendDevices& each : found) {
    if (!each.devices) continue;
    for (std::size_t i = 0; i < each.devices->size(); ++i) {
      rows.push_back(row_of(each.backend, i, (*each.devices)[i]));
    }
  }
  std::array<std::size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) fmt::print("{:<{}}  ", row[i], widths[i]);
    fmt::print("{}\n", row.back());
  }
  for (const BackendDevices& each : found) {
    if (!each.devices) fmt::print("{}: {}\n", each.backend, each.devices.error().message);
  }
}

Json to_json(const BackendDevices& each) {
  const auto or_null = [](auto value) { return value == decltype(value){} ? Json() : Json(value); };
  Json json{{"backend", each.backend}};
  json["error"] = each.devices ? Json() : Json(each.devices.error().message);
  json["devices"] = Json::array();
  if (!each.devices) return json;
  for (std::size_t i = 0; i < each.devices->size(); ++i) {
    const DeviceFacts& device = (*each.devices)[i];
    json["devices"].push_back({{"index", i},
                               {"name", device.name},
                               {"type", device.type},
                               {"api", or_null(device.api)},
                               {"driver", or_null(device.driver)},
                               {"memory_bytes", or_null(device.memory_bytes)},
                               {"max_buffer_bytes", or_null(device.max_buffer_bytes)},
                               {"max_binding_bytes", or_null(device.max_binding_bytes)},
                               {"f16", device.f16},
                               {"subgroups", device.subgroups}});
  }
  return json;
}

}  // namespace

void add_devices_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("devices", "List what each backend can compute on here.");
  static bool json = false;
  command->add_flag("--json", json, "Print it as JSON.");
  command->callback([&exit_code] {
    const std::vector<BackendDevices> found = list_devices();
    if (json) {
      Json all = Json::array();
      for (const BackendDevices& each : found) all.push_back(to_json(each));
      fmt::print("{}\n", all.dump(2));
    } else {
      print_table(found);
    }
    exit_code = 0;
  });
}

}  // namespace kipp
