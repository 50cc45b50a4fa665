// A pulled checkpoint in small: a directory with every file the hub has, and the registry entry
// that pins them. Weights are random, the tokenizer is the real one.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/rng.h"
#include "convert/hf_weights.h"
#include "convert/sha256.h"
#include "model/artifact_layout.h"
#include "model/checkpoints.h"
#include "support/hub_files.h"
#include "support/safetensors_file.h"

namespace kipp {

class HubDirectory {
 public:
  explicit HubDirectory(bool tied)
      : path_(std::filesystem::path(::testing::TempDir()) /
              fmt::format("kipp_hub_{}", ::getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    entry_.id = "tiny-test";
    entry_.variant = Variant::instruct;
    entry_.repository = "Test/Tiny";
    entry_.revision = "0123456789012345678901234567890123456789";
    entry_.config = {.hidden = 32,
                     .layers = 2,
                     .query_heads = 8,
                     .intermediate = 64,
                     .context_length = 40960,
                     .rope_theta = 1000000,
                     .tied = tied};
    const Checkpoint& real = **find_checkpoint("qwen3-0.6b");
    entry_.stop_tokens = real.stop_tokens;
    entry_.sampling = real.sampling;
    make_tensors();
  }
  ~HubDirectory() { std::filesystem::remove_all(path_); }
  HubDirectory(const HubDirectory&) = delete;
  HubDirectory& operator=(const HubDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::vector<TestTensor>& tensors() { return tensors_; }
  TestTensor& tensor(const std::string& name) {
    return *std::find_if(tensors_.begin(), tensors_.end(),
                         [&](const TestTensor& t) { return t.name == name; });
  }
  void add(TestTensor tensor) { tensors_.push_back(std::move(tensor)); }

  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

  // All tensors in one file, or dealt out to shards with an index.
  void write_weights(int shards = 1) {
    if (shards == 1) {
      write_safetensors(path_ / "model.safetensors", tensors_);
      return;
    }
    nlohmann::json map;
    for (int i = 0; i < shards; ++i) {
      const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards);
      std::vector<TestTensor> part;
      for (std::size_t t = static_cast<std::size_t>(i); t < tensors_.size();
           t += static_cast<std::size_t>(shards)) {
        part.push_back(tensors_[t]);
        map[tensors_[t].name] = name;
      }
      write_safetensors(path_ / name, part);
    }
    // The published total_size is wrong, so this one is too.
    write("model.safetensors.index.json",
          nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump(2));
  }

  // The files beside the weights, right for this entry.
  void write_small_files() {
    const ModelConfig& c = entry_.config;
    nlohmann::json config = nlohmann::json::parse(hub_file("config.0.6B.json"));
    config["hidden_size"] = c.hidden;
    config["num_hidden_layers"] = config["max_window_layers"] = c.layers;
    config["num_attention_heads"] = c.query_heads;
    config["intermediate_size"] = c.intermediate;
    config["tie_word_embeddings"] = c.tied;
    write("config.json", config.dump());
    write("generation_config.json", hub_file("generation_config.instruct.json"));
    write("tokenizer.json", tokenizer_json("instruct"));
    write("tokenizer_config.json", hub_file("tokenizer_config.instruct.json"));
  }

  // The entry with every file of the directory pinned as it is now; weights first, as in the
  // registry.
  const Checkpoint& pin() {
    names_.clear();
    files_.clear();
    std::vector<std::string> found;
    for (const auto& item : std::filesystem::directory_iterator(path_)) {
      found.push_back(item.path().filename().string());
    }
    const auto is_weights = [](const std::string& n) { return n.ends_with(".safetensors"); };
    std::sort(found.begin(), found.end(), [&](const std::string& a, const std::string& b) {
      return std::pair(!is_weights(a), a) < std::pair(!is_weights(b), b);
    });
    for (const std::string& name : found) {
      const auto& kept = names_.emplace_back(name);
      const auto& hash = names_.emplace_back(*sha256_of_file(path_ / name, {}, nullptr));
      files_.push_back(
          {kept, static_cast<std::int64_t>(std::filesystem::file_size(path_ / name)), hash, true});
    }
    entry_.files = files_;
    return entry_;
  }
  const Checkpoint& entry() const { return entry_; }
  PinnedFile& pinned(std::string_view name) {
    return *std::find_if(files_.begin(), files_.end(),
                         [&](const PinnedFile& file) { return file.name == name; });
  }

 private:
  void make_tensors() {
    std::uint64_t seed = 1;
    for (const TensorSpec& spec : artifact_tensors(entry_.config)) {
      TestTensor tensor{hf_tensor_name(spec.name), {}, {}};
      if (spec.role != TensorRole::norm) tensor.shape.push_back(spec.rows);
      tensor.shape.push_back(spec.cols);
      tensor.values.resize(static_cast<std::size_t>(spec.rows) *
                           static_cast<std::size_t>(spec.cols));
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        // Every pattern of a finite value may occur.
        const auto bits = static_cast<std::uint16_t>(draw_bits(seed, i));
        tensor.values[i] =
            (bits & 0x7f80u) == 0x7f80u ? static_cast<std::uint16_t>(bits ^ 0x80u) : bits;
      }
      ++seed;
      tensors_.push_back(std::move(tensor));
    }
  }

  std::filesystem::path path_;
  Checkpoint entry_;
  std::vector<TestTensor> tensors_;
  std::list<std::string> names_;  // what the pinned files' views point into
  std::vector<PinnedFile> files_;
};

}  // namespace kipp
