// The published tokenizer files pass; one token, merge, rank, flag or rule changed is refused by
// name.
#include "convert/hf_tokenizer.h"

#include <gmock/gmock.h>

#include <functional>

#include "support/hub_files.h"

namespace kipp {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

const Checkpoint& entry(std::string_view id) { return **find_checkpoint(id); }

Json& instruct() {
  static Json parsed = Json::parse(tokenizer_json("instruct"));
  return parsed;
}
Json& base() {
  static Json parsed = Json::parse(tokenizer_json("base"));
  return parsed;
}
Json config(const std::string& kind) {
  return Json::parse(hub_file("tokenizer_config." + kind + ".json"));
}

std::string problem(std::string_view id, const Json& tokenizer, const Json& tokenizer_config) {
  const auto checked = check_hf_tokenizer(entry(id), tokenizer, tokenizer_config);
  if (checked) return "none";
  EXPECT_EQ(checked.error().code, ErrorCode::refused);
  return checked.error().message;
}

TEST(HfTokenizer, PublishedFilesPass) {
  EXPECT_EQ(problem("qwen3-0.6b-base", base(), config("base")), "none");
  EXPECT_EQ(problem("qwen3-32b", instruct(), config("instruct")), "none");
  EXPECT_EQ(problem("qwen3-4b-instruct-2507", instruct(), config("instruct-2507")), "none");
  EXPECT_EQ(problem("qwen3-4b-thinking-2507", instruct(), config("thinking-2507")), "none");
}

TEST(HfTokenizer, TheUnionOfAddedTokensMustBeComplete) {
  // The base file lacks 151665 to 151668; with a configuration that lacks one of them nobody
  // declares it.
  Json lacking = config("base");
  lacking["added_tokens_decoder"].erase("151667");
  EXPECT_EQ(problem("qwen3-0.6b-base", base(), lacking),
            "tokenizer.json and tokenizer_config.json: added token 151667: expected <think>, found "
            "nothing");
  // The instruct file declares all of them itself.
  Json none = config("instruct");
  none["added_tokens_decoder"] = Json::object();
  EXPECT_EQ(problem("qwen3-0.6b", instruct(), none), "none");
}

struct Mutation {
  std::string pointer;  // what is changed, in tokenizer.json
  Json value;           // null: the field is removed
  std::string expected;
};

std::vector<Mutation> mutations() {
  const std::string t = "tokenizer.json: ";
  return {
      {"/version", "1.1", t + "version: expected \"1.0\", found \"1.1\""},
      {"/normalizer/type", "NFKC",
       t + R"(normalizer: expected {"type":"NFC"}, found {"type":"NFKC"})"},
      {"/normalizer", {}, t + "normalizer: expected"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\p{N}{1,3}",
       t + "pre_tokenizer: expected"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Removed", t + "pre_tokenizer: expected"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", true, t + "pre_tokenizer: expected"},
      {"/post_processor/type", "TemplateProcessing", t + "post_processor: expected"},
      {"/decoder/use_regex", true, t + "decoder: expected"},
      {"/truncation", {{"max_length", 8}}, t + "truncation: expected null"},
      {"/padding", {{"strategy", "BatchLongest"}}, t + "padding: expected null"},
      {"/surprise", 1, t + "\"surprise\": expected no such field"},
      {"/model/type", "WordPiece", t + "model: type: expected \"BPE\""},
      {"/model/dropout", 0.1, t + "model: dropout: expected null, found 0.1"},
      {"/model/unk_token", "<unk>", t + "model: unk_token: expected null"},
      {"/model/fuse_unk", true, t + "model: fuse_unk: expected false"},
      {"/model/byte_fallback", true, t + "model: byte_fallback: expected false"},
      {"/model/ignore_merges", true, t + "model: ignore_merges: expected false"},
      {"/model/continuing_subword_prefix", "##",
       t + "model: continuing_subword_prefix: expected \"\""},
      {"/model/end_of_word_suffix", "</w>", t + "model: end_of_word_suffix: expected \"\""},
      {"/model/surprise", 1, t + "model: \"surprise\": expected no such field"},
      {"/model/vocab", {}, t + "model: vocab: expected {}, found nothing"},
      {"/model/vocab/Hello", 9708, t + "model.vocab: \"Hello\": expected id 9707, found 9708"},
      {"/model/vocab/Hello", {}, t + "model.vocab: \"Hello\": expected id 9707, found nothing"},
      {"/model/vocab/\u0120the", "279",
       t + "model.vocab: \"\\u0120the\": expected id 279, found \"279\""},
      {"/model/vocab/newtoken123", 151643, t + "model.vocab: expected 151643 tokens, found 151644"},
      {"/model/merges/0", "a b",
       t + "model.merges: rank 0: expected \"\\u0120 \\u0120\", found \"a b\""},
      {"/model/merges/151386", Json::array({"x"}), t + "model.merges: rank 151386: expected"},
      {"/model/merges/77", Json::array({"a", "b", "c"}), t + "model.merges: rank 77: expected"},
      {"/model/merges/77", 5, t + "model.merges: rank 77: expected"},
      {"/model/merges/-", "a b", t + "model.merges: expected 151387 of them, found 151388"},
      {"/added_tokens/2/content", "<|im_End|>",
       t + "added_tokens: 151645: content: expected \"<|im_end|>\""},
      {"/added_tokens/2/special", false,
       t + "added_tokens: 151645: special: expected true, found false"},
      {"/added_tokens/2/lstrip", true,
       t + "added_tokens: 151645: lstrip: expected false, found true"},
      {"/added_tokens/2/normalized", true, t + "added_tokens: 151645: normalized: expected false"},
      {"/added_tokens/2/id", 151669, t + "added_tokens: id: expected one of the 26 added tokens"},
      {"/added_tokens/2/id", 9707, t + "added_tokens: id: expected one of the 26 added tokens"},
      {"/added_tokens/2/id", {}, t + "added_tokens: expected objects with an id"},
      {"/added_tokens/2", 1, t + "added_tokens: expected objects with an id, found 1"},
  };
}

// Applies a change and takes it back, so that the large tables are parsed once.
void with_change(Json& json, const Mutation& m, const std::function<void()>& look) {
  const Json::json_pointer pointer(m.pointer);
  Json& parent = json.at(pointer.parent_pointer());
  const std::string key = pointer.back();
  if (parent.is_array()) {
    if (key == "-") {
      parent.push_back(m.value);
      look();
      parent.erase(parent.size() - 1);
      return;
    }
    Json& place = parent.at(std::stoul(key));
    const Json before = std::exchange(place, m.value);
    look();
    place = before;
    return;
  }
  const bool there = parent.contains(key);
  const Json before = there ? parent[key] : Json();
  if (m.value.is_null()) {
    parent.erase(key);
  } else {
    parent[key] = m.value;
  }
  look();
  if (there) {
    parent[key] = before;
  } else {
    parent.erase(key);
  }
}

TEST(HfTokenizer, EveryDifferenceIsRefusedByName) {
  const Json right = config("instruct");
  for (const Mutation& m : mutations()) {
    with_change(instruct(), m, [&] {
      EXPECT_THAT(problem("qwen3-0.6b", instruct(), right), HasSubstr(m.expected)) << m.pointer;
    });
  }
  EXPECT_EQ(problem("qwen3-0.6b", instruct(), right), "none") << "the changes were taken back";
}

TEST(HfTokenizer, SwappedMergesAreARank) {
  Json& merges = instruct()["model"]["merges"];
  std::swap(merges[500], merges[501]);
  EXPECT_THAT(problem("qwen3-0.6b", instruct(), config("instruct")),
              HasSubstr("model.merges: rank 500: expected"));
  std::swap(merges[500], merges[501]);
}

TEST(HfTokenizer, TheConfigurationCounts) {
  const Json right = config("instruct");
  const auto with = [&](const char* pointer, const Json& value) {
    Json changed = right;
    changed[Json::json_pointer(pointer)] = value;
    return problem("qwen3-0.6b", instruct(), changed);
  };
  const std::string c = "tokenizer_config.json: ";
  EXPECT_THAT(with("/eos_token", "<|endoftext|>"),
              HasSubstr(c + "eos_token: expected \"<|im_end|>\", found \"<|endoftext|>\""));
  EXPECT_THAT(problem("qwen3-0.6b-base", base(), right), HasSubstr(c + "eos_token: expected"));
  EXPECT_THAT(with("/add_bos_token", true), HasSubstr(c + "add_bos_token: expected false"));
  EXPECT_THAT(with("/add_prefix_space", true), HasSubstr(c + "add_prefix_space: expected false"));
  EXPECT_THAT(with("/bos_token", "<s>"), HasSubstr(c + "bos_token: expected null, found \"<s>\""));
  EXPECT_THAT(with("/tokenizer_class", "Other"), HasSubstr(c + "tokenizer_class: expected"));
  EXPECT_THAT(with("/additional_special_tokens/0", "<s>"),
              HasSubstr(c + "additional_special_tokens: expected"));
  EXPECT_THAT(with("/chat_template", Json::array()), HasSubstr(c + "chat_template: expected"));
  EXPECT_THAT(with("/surprise", 1), HasSubstr(c + "\"surprise\": expected no such field"));
  EXPECT_THAT(with("/added_tokens_decoder/151668/content", "</Think>"),
              HasSubstr(c + "added_tokens_decoder: 151668: content: expected \"</think>\""));
  EXPECT_THAT(with("/added_tokens_decoder/151668/rstrip", true),
              HasSubstr(c + "added_tokens_decoder: 151668: rstrip: expected false"));
  EXPECT_THAT(with("/added_tokens_decoder/151669", {{"content", "<new>"}}),
              HasSubstr(c + "added_tokens_decoder: id: expected one of"));
  EXPECT_THAT(with("/added_tokens_decoder/151668x", {{"content", "<new>"}}),
              HasSubstr("found \"151668x\""));
}

}  // namespace
}  // namespace kipp
