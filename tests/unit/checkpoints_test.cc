// The registry against tests/data/registry_facts.json, field by field, and its own consistency.
#include "model/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace kipp {
namespace {

using Json = nlohmann::json;

Json facts() {
  std::ifstream file(KIPP_TEST_DATA "/registry_facts.json");
  return Json::parse(file);
}

std::string id_of(const Json& fact) { return fact.at("id").get<std::string>(); }

TEST(Checkpoints, AreTheThirteenOfTheFactsAndTheDemo) {
  const Json all = facts();
  std::vector<std::string> expected;
  for (const Json& fact : all.at("checkpoints")) expected.push_back(id_of(fact));
  expected.push_back("kipp-demo");
  std::vector<std::string> found;
  for (const Checkpoint& entry : checkpoints()) found.emplace_back(entry.id);
  EXPECT_EQ(expected.size(), 14u);
  EXPECT_EQ(found, expected);
}

TEST(Checkpoints, PinTheFactsFieldByField) {
  const Json all = facts();
  for (const Json& fact : all.at("checkpoints")) {
    SCOPED_TRACE(id_of(fact));
    const auto found = find_checkpoint(id_of(fact));
    ASSERT_TRUE(found.has_value());
    const Checkpoint& entry = **found;
    EXPECT_EQ(entry.kind, CheckpointKind::pinned);
    EXPECT_EQ(entry.repository, fact.at("checkpoint").get<std::string>());
    EXPECT_EQ(entry.revision, fact.at("revision").get<std::string>());
    EXPECT_EQ(to_string(entry.variant), fact.at("variant").get<std::string>());
    const Json& config = fact.at("config");
    const ModelConfig& c = entry.config;
    EXPECT_EQ(c.hidden, config.at("hidden_size"));
    EXPECT_EQ(c.layers, config.at("num_hidden_layers"));
    EXPECT_EQ(c.query_heads, config.at("num_attention_heads"));
    EXPECT_EQ(c.intermediate, config.at("intermediate_size"));
    EXPECT_EQ(c.context_length, config.at("max_position_embeddings"));
    EXPECT_EQ(c.rope_theta, config.at("rope_theta"));
    EXPECT_EQ(c.tied, config.at("tie_word_embeddings"));
    EXPECT_EQ(kKvHeads, config.at("num_key_value_heads"));
    EXPECT_EQ(kHeadDim, config.at("head_dim"));
    EXPECT_EQ(kVocabRows, config.at("vocab_size"));
    EXPECT_FLOAT_EQ(kRmsEps, config.at("rms_norm_eps").get<float>());
    EXPECT_EQ(entry.parameters, fact.at("parameter_count_unique"));
    EXPECT_EQ(std::vector<Token>(entry.stop_tokens.begin(), entry.stop_tokens.end()),
              fact.at("stop_token_ids").get<std::vector<Token>>());

    const Json& generation = fact.at("generation_config");
    // One source left do_sample out; its temperature says that it samples.
    const Json& do_sample = generation.at("do_sample");
    EXPECT_EQ(entry.sampling.sample, do_sample.is_null() || do_sample.get<bool>());
    EXPECT_FLOAT_EQ(entry.sampling.temperature, generation.value("temperature", 0.0f));
    EXPECT_FLOAT_EQ(entry.sampling.top_p, generation.value("top_p", 1.0f));
    EXPECT_EQ(entry.sampling.top_k, generation.value("top_k", 0));

    const Json& files = fact.at("files");
    ASSERT_EQ(entry.files.size(), files.size());
    std::int64_t weight_bytes = 0;
    bool all_verified =
        fact.at("config_verified").get<bool>() && fact.at("generation_config_verified").get<bool>();
    for (std::size_t i = 0; i < files.size(); ++i) {
      const PinnedFile& file = entry.files[i];
      SCOPED_TRACE(std::string(file.name));
      EXPECT_EQ(file.name, files[i].at("name").get<std::string>());
      const Json& bytes = files[i].at("bytes");
      EXPECT_EQ(file.bytes, bytes.is_null() ? 0 : bytes.get<std::int64_t>());
      const Json& sha256 = files[i].at("sha256");
      EXPECT_EQ(file.sha256, sha256.is_null() ? "" : sha256.get<std::string>());
      EXPECT_EQ(file.verified, files[i].at("verified").get<bool>());
      all_verified = all_verified && file.verified;
      if (file.name.ends_with(".safetensors")) weight_bytes += file.bytes;
    }
    EXPECT_EQ(weight_bytes, fact.at("weight_bytes_total"));
    EXPECT_EQ(entry.unverified.empty(), all_verified);
  }
}

TEST(Checkpoints, ParametersFollowFromTheSizes) {
  for (const Checkpoint& entry : checkpoints()) {
    SCOPED_TRACE(std::string(entry.id));
    const ModelConfig& c = entry.config;
    const std::int64_t hidden = c.hidden;
    const std::int64_t q = std::int64_t{c.query_heads} * 128;
    const std::int64_t layer =
        2 * hidden + 2 * 128 + hidden * q * 2 + hidden * 1024 * 2 + 3 * hidden * c.intermediate;
    const std::int64_t embeddings = std::int64_t{151936} * hidden * (c.tied ? 1 : 2);
    EXPECT_EQ(entry.parameters, c.layers * layer + hidden + embeddings);
  }
}

TEST(Checkpoints, LookupByIdentity) {
  const auto found = find_checkpoint("Qwen/Qwen3-0.6B", "c1899de289a04d12100db370d81485cdf75e47ca");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ((*found)->id, "qwen3-0.6b");
  const auto twin = find_checkpoint("synthetic/qwen3-0.6b", "seed-18446744073709551615");
  ASSERT_TRUE(twin.has_value());
  EXPECT_EQ((*twin)->kind, CheckpointKind::synthetic);
  EXPECT_EQ((*twin)->config, (*found)->config);
}

TEST(Checkpoints, RefusalsNameExpectedAndFound) {
  const auto no_id = find_checkpoint("qwen3-235b");
  ASSERT_FALSE(no_id.has_value());
  EXPECT_EQ(no_id.error().code, ErrorCode::invalid);
  EXPECT_THAT(no_id.error().message, testing::HasSubstr("qwen3-235b"));
  EXPECT_THAT(no_id.error().message, testing::HasSubstr("qwen3-32b"));

  const auto other_revision =
      find_checkpoint("Qwen/Qwen3-0.6B", "e6de91484c29aa9480d55605af694f39b081c455");
  ASSERT_FALSE(other_revision.has_value());
  EXPECT_EQ(other_revision.error().code, ErrorCode::refused);
  EXPECT_THAT(other_revision.error().message, testing::HasSubstr("e6de9148"));
  EXPECT_THAT(other_revision.error().message, testing::HasSubstr("c1899de2"));

  for (const char* seed :
       {"", "seed-", "seed-x", "seed-01", "seed--1", "seed-123456789012345678901"}) {
    EXPECT_FALSE(find_checkpoint("synthetic/tiny-tied", seed).has_value()) << seed;
  }
  EXPECT_FALSE(find_checkpoint("Qwen/Qwen3-30B-A3B", "x").has_value());
}

TEST(Checkpoints, SyntheticTwinsCoverEveryEntryAndAwkwardShapes) {
  std::set<std::string_view> repositories;
  bool untied = false;
  bool odd_layers = false;
  bool attention_differs = false;
  for (const Checkpoint& twin : synthetic_checkpoints()) {
    EXPECT_TRUE(repositories.insert(twin.repository).second) << twin.repository;
    EXPECT_EQ(twin.kind, CheckpointKind::synthetic);
    if (!twin.id.starts_with("tiny")) continue;
    untied = untied || !twin.config.tied;
    odd_layers = odd_layers || twin.config.layers % 2 == 1;
    attention_differs = attention_differs || twin.config.attention_width() != twin.config.hidden;
  }
  EXPECT_TRUE(untied && odd_layers && attention_differs);
  for (const Checkpoint& entry : checkpoints()) {
    EXPECT_TRUE(repositories.contains(fmt::format("synthetic/{}", entry.id))) << entry.id;
  }
}

}  // namespace
}  // namespace kipp
