// The tensor set, where it may lie, and what is refused about it. No file but the weights is looked
// at.
#include "convert/hf_weights.h"

#include <gmock/gmock.h>

#include <functional>

#include "support/hub_directory.h"

namespace kipp {
namespace {

using ::testing::HasSubstr;

std::string problem(HubDirectory& hub) {
  auto weights = HfWeights::open(hub.path(), hub.pin());
  if (!weights) {
    EXPECT_EQ(weights.error().code, ErrorCode::refused);
    return weights.error().message;
  }
  const auto head = weights->check_redundant_head();
  return head ? "none" : head.error().message;
}

TEST(HfWeights, NamesOfBothWorlds) {
  EXPECT_EQ(hf_tensor_name("token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(hf_tensor_name("output.weight"), "lm_head.weight");
  EXPECT_EQ(hf_tensor_name("blk.35.ffn_norm.weight"),
            "model.layers.35.post_attention_layernorm.weight");
  EXPECT_EQ(hf_tensor_name("blk.0.attn_k_norm.weight"), "model.layers.0.self_attn.k_norm.weight");
  for (const char* name :
       {"", "blk.", "blk.0", "blk.0.attn_q", "blk.0.attn_q.bias", "attn_q.weight"}) {
    EXPECT_EQ(hf_tensor_name(name), "") << name;
  }
}

TEST(HfWeights, RowsAreTheFilesBytes) {
  HubDirectory hub(true);
  hub.write_weights();
  auto weights = HfWeights::open(hub.path(), hub.pin());
  ASSERT_TRUE(weights.has_value()) << weights.error().message;
  // The object may move before its rows are asked for.
  const HfWeights moved = *std::move(weights);
  const RowSource rows = moved.rows();
  std::vector<std::uint16_t> out(3 * 32);
  ASSERT_TRUE(rows("token_embd.weight", 151933, 3, 32, out).has_value());
  const auto& source = hub.tensor("model.embed_tokens.weight").values;
  EXPECT_TRUE(std::equal(out.begin(), out.end(), source.end() - 96));
  EXPECT_FALSE(rows("no.such.weight", 0, 3, 32, out).has_value());
}

TEST(HfWeights, AcceptsOneFileOrShards) {
  for (const bool tied : {true, false}) {
    HubDirectory hub(tied);
    hub.write_weights();
    EXPECT_EQ(problem(hub), "none");
    std::filesystem::remove(hub.path() / "model.safetensors");
    hub.write_weights(3);
    EXPECT_EQ(problem(hub), "none");
  }
}

TEST(HfWeights, ARedundantHeadMustBeTheEmbedding) {
  HubDirectory hub(true);
  TestTensor head = hub.tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  hub.add(head);
  hub.write_weights(2);
  EXPECT_EQ(problem(hub), "none");

  hub.tensor("lm_head.weight").values[100'000 * 32 + 7] ^= 1;
  hub.write_weights(2);
  EXPECT_THAT(problem(hub),
              HasSubstr("lm_head.weight: expected the bytes of model.embed_tokens.weight"));
  EXPECT_THAT(problem(hub), HasSubstr("in row 100000, column 7"));

  hub.tensor("lm_head.weight").shape = {32, kVocabRows};
  hub.write_weights(2);
  EXPECT_THAT(problem(hub),
              HasSubstr("lm_head.weight.shape: expected [151936, 32], found [32, 151936]"));
}

struct Mutation {
  std::string what;
  std::function<void(HubDirectory&)> apply;
  std::string expected;
};

std::vector<Mutation> mutations() {
  const std::string q = "model.layers.1.self_attn.q_proj.weight";
  const auto erase = [](HubDirectory& hub, const std::string& name) {
    std::erase_if(hub.tensors(), [&](const TestTensor& t) { return t.name == name; });
  };
  return {
      {"missing matrix", [=](HubDirectory& hub) { erase(hub, q); },
       q + ": expected a tensor BF16 [1024, 32], found none"},
      {"missing norm", [=](HubDirectory& hub) { erase(hub, "model.norm.weight"); },
       "model.norm.weight: expected a tensor BF16 [32], found none"},
      {"missing head of an untied checkpoint",
       [=](HubDirectory& hub) { erase(hub, "lm_head.weight"); },
       "lm_head.weight: expected a tensor BF16 [151936, 32], found none"},
      {"a bias",
       [=](HubDirectory& hub) {
         hub.add({"model.layers.0.self_attn.q_proj.bias", {2}, {1, 2}});
       },
       "expected only the 25 tensors of tiny-test, found model.layers.0.self_attn.q_proj.bias too"},
      {"a layer too many",
       [=](HubDirectory& hub) {
         hub.add({"model.layers.2.input_layernorm.weight", {2}, {1, 2}});
       },
       "found model.layers.2.input_layernorm.weight too"},
      {"transposed",
       [=](HubDirectory& hub) {
         hub.tensor(q).shape = {32, 1024};
       },
       q + ".shape: expected [1024, 32], found [32, 1024]"},
      {"flat", [=](HubDirectory& hub) { hub.tensor(q).shape = {1024 * 32}; },
       q + ".shape: expected [1024, 32], found [32768]"},
      {"norm with two dimensions",
       [=](HubDirectory& hub) {
         hub.tensor("model.norm.weight").shape = {1, 32};
       },
       "model.norm.weight.shape: expected [32], found [1, 32]"},
      {"FP16", [=](HubDirectory& hub) { hub.tensor(q).dtype = "F16"; },
       q + ".dtype: expected BF16, F32, I8 or I32, found F16"},
      {"FP32",
       [=](HubDirectory& hub) {
         hub.tensor(q).dtype = "F32";
         hub.tensor(q).values.resize(2 * 1024 * 32);
       },
       q + ".dtype: expected BF16, found F32"},
  };
}

TEST(HfWeights, EveryOtherTensorSetIsRefusedByName) {
  for (const Mutation& m : mutations()) {
    HubDirectory hub(false);
    m.apply(hub);
    hub.write_weights();
    EXPECT_THAT(problem(hub), HasSubstr(m.expected)) << m.what;
  }
}

TEST(HfWeights, ATensorLiesInOneShard) {
  HubDirectory hub(true);
  hub.write_weights(2);
  write_safetensors(hub.path() / "model-00003-of-00002.safetensors",
                    {hub.tensor("model.norm.weight")});
  EXPECT_THAT(problem(hub),
              HasSubstr("model.norm.weight: expected in one file, found in model-0000"));
}

TEST(HfWeights, TheIndexMustTellTheTruth) {
  using Json = nlohmann::json;
  HubDirectory hub(true);
  hub.write_weights(2);
  const std::string name = "model.safetensors.index.json";
  const Json right = Json::parse(read_bytes(hub.file(name)));
  const auto with = [&](const std::function<void(Json&)>& change) {
    Json index = right;
    change(index);
    hub.write(name, index.dump());
    return problem(hub);
  };
  EXPECT_EQ(with([](Json&) {}), "none");
  EXPECT_THAT(with([](Json& j) { j["weight_map"]["model.norm.weight"] = "elsewhere"; }),
              HasSubstr(name + ": weight_map: model.norm.weight: expected model-0000"));
  EXPECT_THAT(with([](Json& j) { j["weight_map"].erase("model.norm.weight"); }),
              HasSubstr("where the tensor is, found nothing"));
  EXPECT_THAT(
      with([](Json& j) { j["weight_map"]["more"] = "x"; }),
      HasSubstr("weight_map: \"more\": expected a tensor of the files, found none in \"x\""));
  EXPECT_THAT(with([](Json& j) { j["weight_map"] = 1; }),
              HasSubstr(name + ": weight_map: expected"));
  EXPECT_THAT(with([](Json& j) { j["surprise"] = 1; }),
              HasSubstr("\"surprise\": expected no such field"));
  hub.write(name, "{");
  EXPECT_THAT(problem(hub), HasSubstr(name + ": expected JSON"));
}

TEST(HfWeights, AShardThatIsNoSafetensorsFileIsRefused) {
  HubDirectory hub(true);
  hub.write_weights();
  std::filesystem::resize_file(hub.path() / "model.safetensors", 100'000);
  EXPECT_THAT(problem(hub), HasSubstr("model.safetensors: "));
}

}  // namespace
}  // namespace kipp
