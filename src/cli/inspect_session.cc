#include "cli/inspect_session.h"

#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "backend/kv_policy.h"
#include "engine/session_file.h"
#include "model/checkpoints.h"

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;

struct PartSize {
  std::string name;
  std::uint64_t blocks = 0;  // that have it
  std::uint64_t bytes = 0;
};

// "key hi2", or of the layers that the policy sets apart "key hi2, layers apart".
std::string plane_name(std::size_t bit) {
  const auto plane = static_cast<kvquant::Plane>(bit % kvquant::kPlanes);
  const auto side = static_cast<kvquant::Side>(bit / kvquant::kPlanes % kvquant::kSides);
  const bool apart = bit >= std::size_t{kvquant::kSides} * kvquant::kPlanes;
  return fmt::format("{} {}{}", kvquant::name_of(side), kvquant::name_of(plane),
                     apart ? ", layers apart" : "");
}

// The blocks by their planes, where policy and checkpoint are known ones, else as a whole.
std::vector<PartSize> block_parts(const SessionFile& file, const SessionOrigin& origin) {
  PartSize rest{.name = "keys and values"};
  for (int i = 0; i < file.blocks(); ++i) {
    ++rest.blocks;
    rest.bytes += file.part(i).bytes;
  }
  const auto policy = KvPolicy::parse(origin.kv);
  const auto checkpoint = find_checkpoint(origin.checkpoint);
  if (!policy || policy->all_bf16() || !checkpoint) return {rest};
  const auto units = policy->units_by_plane((*checkpoint)->config);
  std::vector<PartSize> parts;
  for (std::size_t bit = 0; bit < units.size(); ++bit) {
    PartSize plane{.name = plane_name(bit)};
    for (int i = 0; i < file.blocks(); ++i) plane.blocks += file.part(i).planes >> bit & 1;
    plane.bytes = plane.blocks * static_cast<std::uint64_t>(units[bit]) * kKvUnitBytes;
    if (plane.bytes == 0) continue;
    rest.bytes -= std::min(rest.bytes, plane.bytes);
    parts.push_back(std::move(plane));
  }
  rest.name = "scales and offsets";
  parts.push_back(std::move(rest));
  return parts;
}

std::vector<PartSize> parts_of(const SessionFile& file, const SessionOrigin& origin) {
  std::vector<PartSize> parts = {{.name = "tokens", .bytes = file.tokens().size() * sizeof(Token)},
                                 {.name = "logits", .bytes = file.logits().size() * sizeof(float)}};
  for (PartSize& part : block_parts(file, origin)) parts.push_back(std::move(part));
  PartSize other{.name = "header and checksums", .bytes = file.header().file_bytes};
  for (const PartSize& part : parts) other.bytes -= part.bytes;
  parts.push_back(std::move(other));
  return parts;
}

Json to_json(const std::string& path, const SessionFile& file) {
  const SessionOrigin origin = file.origin();
  const SessionFileHeader& header = file.header();
  Json json{{"file", path},
            {"file_bytes", header.file_bytes},
            {"kind", header.first_block == 0 ? "session" : "prefix"},
            {"version", header.version},
            {"id", origin.checkpoint},
            {"source", origin.source},
            {"scheme", origin.scheme},
            {"backend", origin.backend},
            {"kv", origin.kv},
            {"tokens", file.tokens().size()},
            {"first_block", header.first_block},
            {"blocks", file.blocks()}};
  json["parts"] = Json::array();
  for (const PartSize& part : parts_of(file, origin)) {
    Json entry{{"name", part.name}, {"bytes", part.bytes}};
    if (part.blocks > 0) entry["blocks"] = part.blocks;
    json["parts"].push_back(std::move(entry));
  }
  return json;
}

void print_text(const std::string& path, const SessionFile& file) {
  const SessionOrigin origin = file.origin();
  const SessionFileHeader& header = file.header();
  fmt::print("file          {} ({} bytes), a saved session, version {}\n", path, header.file_bytes,
             header.version);
  fmt::print("checkpoint    {}, {}\n", origin.checkpoint, origin.scheme);
  fmt::print("source        {}\n", origin.source);
  fmt::print("backend       {}\nkv            {}\n", origin.backend, origin.kv);
  fmt::print("tokens        {}\n", file.tokens().size());
  if (header.first_block == 0) {
    fmt::print("blocks        {} of {} positions\n\n", file.blocks(), kBlockPositions);
  } else {
    fmt::print("blocks        {} of {} positions, from block {} on\n\n", file.blocks(),
               kBlockPositions, header.first_block);
  }
  fmt::print("{:<28} {:>8} {:>14}\n", "part", "blocks", "bytes");
  for (const PartSize& part : parts_of(file, origin)) {
    const std::string blocks = part.blocks > 0 ? std::to_string(part.blocks) : std::string();
    fmt::print("{:<28} {:>8} {:>14}\n", part.name, blocks, part.bytes);
  }
}

}  // namespace

bool begins_as_session(const std::string& path) {
  std::array<char, sizeof SessionFileHeader::magic> magic{};
  std::ifstream in(path, std::ios::binary);
  in.read(magic.data(), magic.size());
  return in && magic == kSessionMagic;
}

Result<void> inspect_session(const std::string& path, bool json) {
  KIPP_TRY_ASSIGN(file, SessionFile::open(path));
  if (json) {
    fmt::print("{}\n", to_json(path, file).dump(2));
  } else {
    print_text(path, file);
  }
  return {};
}

}  // namespace kipp
