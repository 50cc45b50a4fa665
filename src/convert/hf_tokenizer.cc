#include "convert/hf_tokenizer.h"

#include <array>
#include <bitset>
#include <charconv>
#include <optional>

#include "convert/strict_json.h"
#include "tokenizer/vocabulary.h"

namespace kipp {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kTokenizer = "tokenizer.json";
constexpr std::string_view kConfig = "tokenizer_config.json";

// The pattern that tokenizer/pretokenize.h implements by hand.
constexpr auto kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", false}};
}

// tokenizer.json without its tables.
Result<void> check_rules(const Json& tokenizer) {
  const Json split{{"type", "Split"},
                   {"pattern", {{"Regex", kPattern}}},
                   {"behavior", "Isolated"},
                   {"invert", false}};
  const Json expected{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Json::array()},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level()})}}},
      {"post_processor", byte_level()},
      {"decoder", byte_level()},
      {"model", Json::object()},
  };
  return expect_fields(tokenizer, expected, kTokenizer, {"added_tokens", "model"});
}

Result<void> check_model(const Json& model) {
  const Json expected{{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", ""},
                      {"end_of_word_suffix", ""},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false},
                      {"vocab", Json::object()},
                      {"merges", Json::array()}};
  return expect_fields(model, expected, "tokenizer.json: model", {"vocab", "merges"},
                       {"ignore_merges"});
}

Result<void> check_vocabulary(const Json& vocab) {
  for (Token id = 0; id < kFirstAddedToken; ++id) {
    const std::string text = to_printable(qwen_vocabulary().token_bytes(id));
    const auto place = vocab.find(text);
    if (place == vocab.end() || *place != id) {
      return fail(ErrorCode::refused, "{}: model.vocab: {}: expected id {}, found {}", kTokenizer,
                  shown(text), id, place == vocab.end() ? "nothing" : shown(*place));
    }
  }
  if (vocab.size() != static_cast<std::size_t>(kFirstAddedToken)) {
    return fail(ErrorCode::refused, "{}: model.vocab: expected {} tokens, found {}", kTokenizer,
                kFirstAddedToken, vocab.size());
  }
  return {};
}

// Merges come as "a b" or as ["a", "b"]; never does a part hold a blank.
bool is_merge(const Json& found, const std::string& left, const std::string& right) {
  if (found.is_string()) return found.get_ref<const std::string&>() == left + ' ' + right;
  return found.is_array() && found.size() == 2 && found[0] == left && found[1] == right;
}

Result<void> check_merges(const Json& merges) {
  const Vocabulary& vocabulary = qwen_vocabulary();
  if (merges.size() != vocabulary.merges.size()) {
    return fail(ErrorCode::refused, "{}: model.merges: expected {} of them, found {}", kTokenizer,
                vocabulary.merges.size(), merges.size());
  }
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = vocabulary.merges[rank];
    const std::string a = to_printable(vocabulary.token_bytes(left));
    const std::string b = to_printable(vocabulary.token_bytes(right));
    if (!is_merge(merges[rank], a, b)) {
      return fail(ErrorCode::refused, "{}: model.merges: rank {}: expected {}, found {}",
                  kTokenizer, rank, shown(a + ' ' + b), shown(merges[rank]));
    }
  }
  return {};
}

// Both files declare added tokens; each declaration must be true, and together they must be
// complete.
class AddedTokens {
 public:
  Result<void> see(const Json& id, const Json& fields, std::string_view label) {
    const std::size_t n = added_tokens().size();
    const bool known = id.is_number_integer() && id >= kFirstAddedToken && id < kNamedTokens;
    if (!known) {
      return fail(ErrorCode::refused,
                  "{}: id: expected one of the {} added tokens, {} to {}, found {}", label, n,
                  kFirstAddedToken, kNamedTokens - 1, shown(id));
    }
    const auto index = static_cast<std::size_t>(id.get<Token>() - kFirstAddedToken);
    const AddedToken& token = added_tokens()[index];
    seen_.set(index);
    const Json expected{{"content", token.text}, {"special", token.special}, {"single_word", false},
                        {"lstrip", false},       {"rstrip", false},          {"normalized", false}};
    return expect_fields(fields, expected, fmt::format("{}: {}", label, id.get<Token>()));
  }

  Result<void> complete() const {
    for (const AddedToken& token : added_tokens()) {
      if (seen_.test(static_cast<std::size_t>(token.id - kFirstAddedToken))) continue;
      return fail(ErrorCode::refused, "{} and {}: added token {}: expected {}, found nothing",
                  kTokenizer, kConfig, token.id, token.text);
    }
    return {};
  }

 private:
  std::bitset<kNamedTokens - kFirstAddedToken> seen_;
};

Result<void> check_added_tokens(const Json& list, const Json& decoder) {
  AddedTokens all;
  for (const Json& entry : list) {
    if (!entry.is_object() || !entry.contains("id")) {
      return fail(ErrorCode::refused, "{}: added_tokens: expected objects with an id, found {}",
                  kTokenizer, shown(entry));
    }
    Json fields = entry;
    fields.erase("id");
    KIPP_TRY(all.see(entry["id"], fields, "tokenizer.json: added_tokens"));
  }
  for (const auto& [key, fields] : decoder.items()) {
    Token id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool number = error == std::errc() && end == key.data() + key.size();
    KIPP_TRY(all.see(number ? Json(id) : Json(key), fields,
                     "tokenizer_config.json: added_tokens_decoder"));
  }
  return all.complete();
}

Result<void> check_config(const Checkpoint& checkpoint, const Json& config) {
  Json special = Json::array();
  for (const AddedToken& token : added_tokens()) {
    if (token.special && token.id != kEndOfText) special.push_back(token.text);
  }
  const auto& end =
      added_tokens()[static_cast<std::size_t>(checkpoint.stop_tokens.front() - kFirstAddedToken)];
  const Json expected{
      {"tokenizer_class", "Qwen2Tokenizer"},
      {"add_bos_token", false},
      {"add_prefix_space", false},
      {"additional_special_tokens", special},
      {"bos_token", nullptr},
      {"eos_token", end.text},
      {"pad_token", "<|endoftext|>"},
      {"unk_token", nullptr},
      {"errors", "replace"},
      {"split_special_tokens", false},
      {"clean_up_tokenization_spaces", false},
      {"added_tokens_decoder", Json::object()},
      // Rendering is code here, proven equal to the pinned templates; a length limit is the
      // config's.
      {"chat_template", ""},
      {"model_max_length", Json::number_unsigned_t{0}},
  };
  return expect_fields(config, expected, kConfig,
                       {"added_tokens_decoder", "chat_template", "model_max_length"});
}

}  // namespace

Result<void> check_hf_tokenizer(const Checkpoint& checkpoint, const Json& tokenizer,
                                const Json& config) {
  KIPP_TRY(check_rules(tokenizer));
  KIPP_TRY(check_model(tokenizer["model"]));
  KIPP_TRY(check_config(checkpoint, config));
  KIPP_TRY(check_added_tokens(tokenizer["added_tokens"], config["added_tokens_decoder"]));
  KIPP_TRY(check_vocabulary(tokenizer["model"]["vocab"]));
  return check_merges(tokenizer["model"]["merges"]);
}

}  // namespace kipp
