// The registry, to be read in one sitting. Values: the Hub's config.json and generation_config.json
// at the pinned revisions. Adding a checkpoint means adding an entry here and its files in
// checkpoint_files.cc.
#include "model/checkpoints.h"

#include <algorithm>
#include <vector>

#include "model/checkpoint_files.h"

namespace kipp {
namespace {

constexpr Token kEndOfText = 151643;  // <|endoftext|>
constexpr Token kImEnd = 151645;      // <|im_end|>
constexpr Token kBaseStops[] = {kEndOfText};
constexpr Token kInstructStops[] = {kImEnd, kEndOfText};

constexpr SamplingDefaults kGreedy{};
constexpr SamplingDefaults kThinkingSampling{
    .sample = true, .temperature = 0.6f, .top_p = 0.95f, .top_k = 20};
constexpr SamplingDefaults kInstruct2507Sampling{
    .sample = true, .temperature = 0.7f, .top_p = 0.8f, .top_k = 20};

constexpr int kBaseContext = 32768;
constexpr int kInstructContext = 40960;
constexpr int kLongContext = 262144;
constexpr int kTheta = 1000000;
constexpr int kLongTheta = 5000000;

constexpr std::string_view kQwen38bBaseUnverified[] = {
    "model.safetensors.index.json: one source",
};
constexpr std::string_view kQwen314bBaseUnverified[] = {
    "config: one registry and consistent totals; config.json bytes unknown",
    "generation_config: inferred from the other base checkpoints",
    "weights: SHA-256 from one source, sizes derived",
    "model.safetensors.index.json: unknown",
    "tokenizer.json: inferred",
    "tokenizer_config.json: inferred",
    "vocab.json: inferred",
    "merges.txt: inferred",
};
constexpr std::string_view kQwen34bThinking2507Unverified[] = {
    "config: two sources; config.json bytes unknown",
    "generation_config: stop tokens and sampling values from one source; bytes unknown",
    "weights: SHA-256 from one source, sizes derived",
    "model.safetensors.index.json: inferred",
    "tokenizer.json: one source",
    "vocab.json: inferred",
    "merges.txt: unknown",
};

// One size of the family; context and theta follow from the variant.
struct Size {
  int hidden, layers, query_heads, intermediate;
  bool tied;
  std::int64_t parameters;
};
constexpr Size k0p6B{1024, 28, 16, 3072, true, 596049920};
constexpr Size k1p7B{2048, 28, 16, 6144, true, 1720574976};
constexpr Size k4B{2560, 36, 32, 9728, true, 4022468096};
constexpr Size k8B{4096, 36, 32, 12288, false, 8190735360};
constexpr Size k14B{5120, 40, 40, 17408, false, 14768307200};
constexpr Size k32B{5120, 64, 64, 25600, false, 32762123264};

Checkpoint pinned(std::string_view id, Variant variant, std::string_view repository,
                  std::string_view revision, const Size& size,
                  std::span<const std::string_view> unverified = {}) {
  const bool base = variant == Variant::base;
  const bool refreshed = variant == Variant::instruct_2507 || variant == Variant::thinking_2507;
  Checkpoint entry;
  entry.id = id;
  entry.variant = variant;
  entry.repository = repository;
  entry.revision = revision;
  entry.config = {.hidden = size.hidden,
                  .layers = size.layers,
                  .query_heads = size.query_heads,
                  .intermediate = size.intermediate,
                  .context_length = base        ? kBaseContext
                                    : refreshed ? kLongContext
                                                : kInstructContext,
                  .rope_theta = refreshed ? kLongTheta : kTheta,
                  .tied = size.tied};
  entry.parameters = size.parameters;
  entry.stop_tokens = base ? std::span<const Token>(kBaseStops) : kInstructStops;
  entry.sampling = base                                ? kGreedy
                   : variant == Variant::instruct_2507 ? kInstruct2507Sampling
                                                       : kThinkingSampling;
  entry.files = pinned_files(id);
  entry.unverified = unverified;
  return entry;
}

std::int64_t count_parameters(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden;
  const std::int64_t attention = hidden * (2 * c.attention_width() + 2 * kKvWidth);
  const std::int64_t norms = 2 * hidden + 2 * kHeadDim;
  const std::int64_t mlp = 3 * hidden * c.intermediate;
  const std::int64_t embedding = hidden * kVocabRows * (c.tied ? 1 : 2);
  return c.layers * (attention + norms + mlp) + hidden + embedding;
}

Checkpoint own(std::string_view id, CheckpointKind kind, Variant variant,
               std::string_view repository, std::string_view revision, const ModelConfig& config) {
  Checkpoint entry;
  entry.id = id;
  entry.kind = kind;
  entry.variant = variant;
  entry.repository = repository;
  entry.revision = revision;
  entry.config = config;
  entry.parameters = count_parameters(config);
  entry.stop_tokens =
      variant == Variant::base ? std::span<const Token>(kBaseStops) : kInstructStops;
  return entry;
}

std::vector<Checkpoint> make_checkpoints() {
  using enum Variant;
  std::vector<Checkpoint> all = {
      pinned("qwen3-0.6b-base", base, "Qwen/Qwen3-0.6B-Base",
             "da87bfb608c14b7cf20ba1ce41287e8de496c0cd", k0p6B),
      pinned("qwen3-1.7b-base", base, "Qwen/Qwen3-1.7B-Base",
             "ea980cb0a6c2ae4b936e82123acc929f1cec04c1", k1p7B),
      pinned("qwen3-4b-base", base, "Qwen/Qwen3-4B-Base",
             "906bfd4b4dc7f14ee4320094d8b41684abff8539", k4B),
      pinned("qwen3-8b-base", base, "Qwen/Qwen3-8B-Base",
             "49e3418fbbbca6ecbdf9608b4d22e5a407081db4", k8B, kQwen38bBaseUnverified),
      pinned("qwen3-14b-base", base, "Qwen/Qwen3-14B-Base",
             "0b0bd3732e2c374d483664439ea334928b65f304", k14B, kQwen314bBaseUnverified),
      pinned("qwen3-0.6b", instruct, "Qwen/Qwen3-0.6B", "c1899de289a04d12100db370d81485cdf75e47ca",
             k0p6B),
      pinned("qwen3-1.7b", instruct, "Qwen/Qwen3-1.7B", "70d244cc86ccca08cf5af4e1e306ecf908b1ad5e",
             k1p7B),
      pinned("qwen3-4b", instruct, "Qwen/Qwen3-4B", "1cfa9a7208912126459214e8b04321603b3df60c",
             k4B),
      pinned("qwen3-8b", instruct, "Qwen/Qwen3-8B", "b968826d9c46dd6066d109eabc6255188de91218",
             k8B),
      pinned("qwen3-14b", instruct, "Qwen/Qwen3-14B", "40c069824f4251a91eefaf281ebe4c544efd3e18",
             k14B),
      pinned("qwen3-32b", instruct, "Qwen/Qwen3-32B", "9216db5781bf21249d130ec9da846c4624c16137",
             k32B),
      pinned("qwen3-4b-instruct-2507", instruct_2507, "Qwen/Qwen3-4B-Instruct-2507",
             "cdbee75f17c01a7cc42f958dc650907174af0554", k4B),
      pinned("qwen3-4b-thinking-2507", thinking_2507, "Qwen/Qwen3-4B-Thinking-2507",
             "768f209d9ea81521153ed38c47d515654e938aea", k4B, kQwen34bThinking2507Unverified),
  };
  // Trained by tools/train_demo.py; docs/DEMO.md describes it. Greedy text of so small a model
  // repeats itself, so its default is to sample.
  Checkpoint demo = own("kipp-demo", CheckpointKind::demo, instruct, "kipp/kipp-demo", "v1",
                        {.hidden = 320,
                         .layers = 8,
                         .query_heads = 16,
                         .intermediate = 1024,
                         .context_length = 8192,
                         .rope_theta = kTheta,
                         .tied = true});
  demo.sampling = {.sample = true, .temperature = 0.6f, .top_p = 0.95f, .top_k = 20};
  all.push_back(demo);
  return all;
}

struct SyntheticNames {
  std::string id;          // "synthetic-qwen3-0.6b"
  std::string repository;  // "synthetic/qwen3-0.6b"
};

std::vector<Checkpoint> make_synthetic() {
  // The views of the entries point into these strings, which are never freed.
  static std::vector<SyntheticNames> names;
  names.reserve(checkpoints().size());
  std::vector<Checkpoint> all;
  for (const Checkpoint& real : checkpoints()) {
    names.push_back({fmt::format("synthetic-{}", real.id), fmt::format("synthetic/{}", real.id)});
    Checkpoint twin = own(names.back().id, CheckpointKind::synthetic, real.variant,
                          names.back().repository, "seed-<n>", real.config);
    all.push_back(twin);
  }
  all.push_back(own("tiny-tied", CheckpointKind::synthetic, Variant::instruct,
                    "synthetic/tiny-tied", "seed-<n>",
                    {.hidden = 32,
                     .layers = 3,
                     .query_heads = 8,
                     .intermediate = 64,
                     .context_length = 2048,
                     .rope_theta = kTheta,
                     .tied = true}));
  all.push_back(own("tiny-untied", CheckpointKind::synthetic, Variant::thinking_2507,
                    "synthetic/tiny-untied", "seed-<n>",
                    {.hidden = 64,
                     .layers = 5,
                     .query_heads = 16,
                     .intermediate = 96,
                     .context_length = 4096,
                     .rope_theta = kLongTheta,
                     .tied = false}));
  return all;
}

// "seed-0" .. "seed-18446744073709551615", without leading zeros.
bool is_seed_revision(std::string_view revision) {
  constexpr std::string_view kPrefix = "seed-";
  if (!revision.starts_with(kPrefix)) return false;
  const std::string_view digits = revision.substr(kPrefix.size());
  if (digits.empty() || digits.size() > 20 || (digits.size() > 1 && digits[0] == '0')) return false;
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::span<const Checkpoint> checkpoints() {
  static const std::vector<Checkpoint> all = make_checkpoints();
  return all;
}

std::span<const Checkpoint> synthetic_checkpoints() {
  static const std::vector<Checkpoint> all = make_synthetic();
  return all;
}

Result<const Checkpoint*> find_checkpoint(std::string_view id) {
  std::string known;
  for (const Checkpoint& entry : checkpoints()) {
    if (entry.id == id) return &entry;
    known += known.empty() ? "" : ", ";
    known += entry.id;
  }
  return fail(ErrorCode::invalid, "checkpoint: expected one of {}; found \"{}\"", known, id);
}

Result<const Checkpoint*> find_checkpoint(std::string_view repository, std::string_view revision) {
  for (const Checkpoint& entry : checkpoints()) {
    if (entry.repository != repository) continue;
    if (entry.revision == revision) return &entry;
    return fail(ErrorCode::refused, "revision of {}: expected {}, found \"{}\"", repository,
                entry.revision, revision);
  }
  for (const Checkpoint& entry : synthetic_checkpoints()) {
    if (entry.repository != repository) continue;
    if (is_seed_revision(revision)) return &entry;
    return fail(ErrorCode::refused, "revision of {}: expected seed-<number>, found \"{}\"",
                repository, revision);
  }
  return fail(
      ErrorCode::refused,
      "repository: expected one of the registry (`kipp checkpoints` lists them), found \"{}\"",
      repository);
}

std::string_view to_string(Variant variant) {
  switch (variant) {
    case Variant::base:
      return "base";
    case Variant::instruct:
      return "instruct";
    case Variant::instruct_2507:
      return "instruct-2507";
    case Variant::thinking_2507:
      return "thinking-2507";
  }
  return "";
}

std::string_view to_string(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::pinned:
      return "pinned";
    case CheckpointKind::demo:
      return "demo";
    case CheckpointKind::synthetic:
      return "synthetic";
  }
  return "";
}

}  // namespace kipp
