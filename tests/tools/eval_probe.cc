// Runs steps on a backend and writes what it computed, for comparisons in Python. Standard input,
// JSON:
//   {"artifact": path, "backend": name, "kv_store": "bf16" | "f32" | "tiered", "kv": policy,
//    "kv_blocks": n, "out": folder, "taps": bool, "threads": n, "weights": "packed" | "mapped",
//    "deterministic": bool (true),
//    "steps": [[{"seq": 0, "pos": 0, "tokens": [..], "blocks": [..], "want": "none" | "last" |
//    "all"}, ..], ..]}
// Each line of standard output describes one file of little-endian float32, [rows, cols]:
//   step layer name rows cols file            layer is -1 outside the layers; logits are named
//   "logits"
// Named intermediates exist on `reference` only. Any error ends with its sentence and exit code 1.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "backend/reference/reference_backend.h"
#include "backend/registry.h"
#include "model/artifact.h"

namespace {

using nlohmann::json;

constexpr kipp::PlaneBits kEveryPlane = 0xffff;

struct OwnedItem {
  std::vector<kipp::Token> tokens;
  std::vector<kipp::BlockId> blocks;
};

kipp::LogitRows rows_wanted(const std::string& name) {
  if (name == "all") return kipp::LogitRows::all;
  return name == "none" ? kipp::LogitRows::none : kipp::LogitRows::last;
}

class Output {
 public:
  explicit Output(std::filesystem::path folder) : folder_(std::move(folder)) {}
  int step = 0;

  void write(std::string_view name, int layer, int rows, int cols, const float* data) const {
    const auto file = folder_ / fmt::format("{}.{}.{}.f32", step, layer, name);
    const auto bytes = static_cast<std::streamsize>(sizeof(float)) * rows * cols;
    std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(data), bytes);
    fmt::print("{} {} {} {} {} {}\n", step, layer, name, rows, cols, file.string());
  }

 private:
  std::filesystem::path folder_;
};

// All planes of all blocks have room in a tiered store and are held from the start.
kipp::Result<kipp::KvConfig> kv_config(const json& request, const kipp::ModelConfig& model) {
  kipp::KvConfig kv{.blocks = request.at("kv_blocks").get<int>()};
  const auto store = request.at("kv_store").get<std::string>();
  if (store == "f32") kv.store = kipp::KvStore::f32;
  if (store != "tiered") return kv;
  KIPP_TRY_ASSIGN(policy, kipp::KvPolicy::parse(request.at("kv").get<std::string>()));
  kv.store = kipp::KvStore::tiered;
  kv.units = kv.blocks * policy.units(kEveryPlane, model);
  kv.policy = std::move(policy);
  return kv;
}

void hold_everything(kipp::Backend& backend, int blocks) {
  std::vector<kipp::PlaneChange> changes;
  for (kipp::BlockId block = 0; block < blocks; ++block) changes.push_back({block, kEveryPlane});
  backend.hold_planes(changes);
}

kipp::Result<void> probe(const json& request) {
  KIPP_TRY_ASSIGN(artifact, kipp::Artifact::open(request.at("artifact").get<std::string>(),
                                                 {.allow_synthetic = true}));
  KIPP_TRY_ASSIGN(backend, kipp::make_backend(request.at("backend").get<std::string>()));
  KIPP_TRY_ASSIGN(weights, kipp::parse_weight_store(request.at("weights").get<std::string>()));
  KIPP_TRY_ASSIGN(kv, kv_config(request, artifact.config()));
  KIPP_TRY(backend->load(artifact, kv,
                         {.threads = request.at("threads").get<int>(),
                          .weights = weights,
                          .deterministic = request.value("deterministic", true)}));
  if (kv.store == kipp::KvStore::tiered) hold_everything(*backend, kv.blocks);
  Output output(request.at("out").get<std::string>());
  if (request.at("taps").get<bool>()) {
    auto* reference = dynamic_cast<kipp::reference::ReferenceBackend*>(backend.get());
    if (reference == nullptr) {
      return kipp::fail(kipp::ErrorCode::invalid, "taps: only the reference backend has them");
    }
    reference->set_tap([&](std::string_view name, int layer, const kipp::reference::Rows& rows) {
      output.write(name, layer, rows.rows, rows.cols, rows.data);
    });
  }
  for (const json& step : request.at("steps")) {
    std::vector<OwnedItem> owned(step.size());
    std::vector<kipp::EvalItem> items;
    for (std::size_t i = 0; i < step.size(); ++i) {
      step[i].at("tokens").get_to(owned[i].tokens);
      step[i].at("blocks").get_to(owned[i].blocks);
      items.push_back({.seq = step[i].at("seq").get<kipp::SeqId>(),
                       .pos = step[i].at("pos").get<int>(),
                       .tokens = owned[i].tokens,
                       .blocks = owned[i].blocks,
                       .want = rows_wanted(step[i].at("want").get<std::string>())});
    }
    KIPP_TRY_ASSIGN(logits, backend->eval(items));
    output.write("logits", -1, logits.rows, logits.vocab, logits.data);
    ++output.step;
  }
  return {};
}

}  // namespace

int main() {
  try {
    const auto result = probe(json::parse(std::cin));
    if (result) return 0;
    fmt::print(stderr, "eval_probe: {}\n", result.error().message);
  } catch (const json::exception& e) {
    fmt::print(stderr, "eval_probe: {}\n", e.what());
  }
  return 1;
}
