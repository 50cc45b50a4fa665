// The published configurations pass for their own entry; every field of them, changed, missing or
// added, is refused by name.
#include "convert/hf_config.h"

#include <gmock/gmock.h>

#include "support/hub_files.h"

namespace kipp {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Published {
  std::string_view id;
  std::string config;
  std::string generation;
};
const std::vector<Published> kPublished = {
    {"qwen3-0.6b-base", "config.0.6B-Base.json", "generation_config.base.json"},
    {"qwen3-1.7b-base", "config.1.7B-Base.json", "generation_config.base.json"},
    {"qwen3-4b-base", "config.4B-Base.json", "generation_config.base.json"},
    {"qwen3-8b-base", "config.8B-Base.json", "generation_config.base.json"},
    {"qwen3-0.6b", "config.0.6B.json", "generation_config.instruct.json"},
    {"qwen3-4b", "config.4B.json", "generation_config.instruct.json"},
    {"qwen3-8b", "config.8B.json", "generation_config.instruct.json"},
    {"qwen3-14b", "config.14B.json", "generation_config.instruct.json"},
    {"qwen3-32b", "config.32B.json", "generation_config.instruct.json"},
    {"qwen3-4b-instruct-2507", "config.4B-Instruct-2507.json",
     "generation_config.4B-Instruct-2507.json"},
};

const Checkpoint& entry(std::string_view id) { return **find_checkpoint(id); }

std::string problem(const Result<void>& checked) {
  return checked ? "none" : checked.error().message;
}

TEST(HfConfig, PublishedFilesPassForTheirOwnEntryOnly) {
  for (const Published& file : kPublished) {
    const Json config = Json::parse(hub_file(file.config));
    const Json generation = Json::parse(hub_file(file.generation));
    for (const Published& other : kPublished) {
      const bool own = file.id == other.id;
      EXPECT_EQ(check_hf_config(entry(other.id), config).has_value(), own)
          << file.config << " as " << other.id;
      EXPECT_EQ(check_hf_generation_config(entry(other.id), generation).has_value(),
                file.generation == other.generation)
          << file.generation << " as " << other.id;
    }
  }
}

// Another value of each field: what a fine-tune or a careless hand would leave.
Json changed(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) return value.get<int>() + 1;
  if (value.is_number()) return value.get<double>() * 2 + 0.125;
  if (value.is_string()) return value.get<std::string>() + "x";
  if (value.is_array()) return Json::array({"x"});
  return 1;
}

using Check = Result<void> (*)(const Checkpoint&, const Json&);

void expect_every_field_counts(Check check, const Json& right, std::string_view id,
                               std::string_view label) {
  ASSERT_EQ(problem(check(entry(id), right)), "none");
  for (const auto& [name, value] : right.items()) {
    Json wrong = right;
    wrong.erase(name);
    EXPECT_THAT(problem(check(entry(id), wrong)),
                StartsWith(fmt::format("{}: {}: expected ", label, name)));
    if (name == "transformers_version") continue;  // any release may have written it
    wrong = right;
    wrong[name] = changed(value);
    EXPECT_THAT(problem(check(entry(id), wrong)),
                StartsWith(fmt::format("{}: {}: expected ", label, name)));
    EXPECT_THAT(problem(check(entry(id), wrong)), HasSubstr("found " + changed(value).dump()));
  }
  for (const char* name :
       {"layer_types", "quantization_config", "num_experts", "rope_parameters"}) {
    Json wrong = right;
    wrong[name] = 1;
    EXPECT_THAT(problem(check(entry(id), wrong)),
                HasSubstr(fmt::format("\"{}\": expected no such field, found 1", name)));
  }
  EXPECT_THAT(problem(check(entry(id), Json::array())), HasSubstr("expected an object"));
}

TEST(HfConfig, EveryFieldOfConfigCounts) {
  expect_every_field_counts(check_hf_config, Json::parse(hub_file("config.0.6B.json")),
                            "qwen3-0.6b", "config.json");
  expect_every_field_counts(check_hf_config, Json::parse(hub_file("config.8B-Base.json")),
                            "qwen3-8b-base", "config.json");
}

TEST(HfConfig, EveryFieldOfGenerationConfigCounts) {
  expect_every_field_counts(check_hf_generation_config,
                            Json::parse(hub_file("generation_config.instruct.json")), "qwen3-32b",
                            "generation_config.json");
  expect_every_field_counts(check_hf_generation_config,
                            Json::parse(hub_file("generation_config.base.json")), "qwen3-14b-base",
                            "generation_config.json");
}

}  // namespace
}  // namespace kipp
