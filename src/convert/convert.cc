#include "convert/convert.h"

#include <algorithm>
#include <utility>

#include "convert/artifact_writer.h"
#include "convert/hf_config.h"
#include "convert/hf_tokenizer.h"
#include "convert/hf_weights.h"
#include "convert/sha256.h"
#include "convert/strict_json.h"

namespace kipp {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 1u << 20;
constexpr std::size_t kMaxTokenizerBytes = 64u << 20;

class Conversion {
 public:
  Conversion(const Checkpoint& checkpoint, const ConvertOptions& options)
      : checkpoint_(checkpoint), options_(options) {}

  Result<ConvertReport> run() {
    // Cheap checks first: what is plainly wrong shows before gigabytes are read.
    KIPP_TRY(check_sizes());
    KIPP_TRY(check_meaning());
    KIPP_TRY_ASSIGN(weights, HfWeights::open(options_.from, checkpoint_));
    KIPP_TRY(check_hashes());
    KIPP_TRY(weights.check_redundant_head());
    const ArtifactSource source{std::string(checkpoint_.repository),
                                std::string(checkpoint_.revision), hashes_};
    const auto progress = [this](std::uint64_t done, std::uint64_t total) {
      report_.bytes = total;
      if (options_.progress) options_.progress("writing", done, total);
    };
    KIPP_TRY(write_artifact(options_.out, checkpoint_, options_.scheme, source, weights.rows(),
                            progress, options_.cancel));
    return report_;
  }

 private:
  Result<void> check_sizes() {
    for (const PinnedFile& file : checkpoint_.files) {
      std::error_code error;
      const std::uint64_t size = fs::file_size(options_.from / file.name, error);
      if (error) {
        return fail(ErrorCode::refused,
                    "{}: expected {}, found no such file there; `kipp pull {}` downloads it",
                    options_.from.string(), file.name, checkpoint_.id);
      }
      if (file.bytes != 0 && size != static_cast<std::uint64_t>(file.bytes)) {
        return fail(ErrorCode::refused,
                    "{}: size: expected {} bytes, found {}; `kipp pull {}` replaces it", file.name,
                    file.bytes, size, checkpoint_.id);
      }
      total_ += size;
    }
    return {};
  }

  Result<void> check_meaning() const {
    const auto read = [this](std::string_view name, std::size_t max_bytes) {
      return read_strict_json(options_.from / name, max_bytes);
    };
    KIPP_TRY_ASSIGN(config, read("config.json", kMaxConfigBytes));
    KIPP_TRY(check_hf_config(checkpoint_, config));
    KIPP_TRY_ASSIGN(generation, read("generation_config.json", kMaxConfigBytes));
    KIPP_TRY(check_hf_generation_config(checkpoint_, generation));
    KIPP_TRY_ASSIGN(tokenizer, read("tokenizer.json", kMaxTokenizerBytes));
    KIPP_TRY_ASSIGN(tokenizer_config, read("tokenizer_config.json", kMaxConfigBytes));
    return check_hf_tokenizer(checkpoint_, tokenizer, tokenizer_config);
  }

  Result<void> check_hashes() {
    std::uint64_t done = 0;
    const auto hashed = [&](std::uint64_t bytes) {
      done += bytes;
      if (options_.progress) options_.progress("verifying", done, total_);
    };
    for (const PinnedFile& file : checkpoint_.files) {
      KIPP_TRY_ASSIGN(found, sha256_of_file(options_.from / file.name, hashed, options_.cancel));
      if (file.sha256.empty()) {
        report_.unverified.emplace_back(file.name);
      } else if (found != file.sha256) {
        return fail(ErrorCode::refused,
                    "{}: SHA-256: expected {}, found {}; `kipp pull {}` replaces it", file.name,
                    file.sha256, found, checkpoint_.id);
      }
      hashes_.emplace_back(file.name, found);
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const ConvertOptions& options_;
  ConvertReport report_;
  std::uint64_t total_ = 0;  // bytes of all source files
  std::vector<std::pair<std::string, std::string>> hashes_;
};

}  // namespace

Result<ConvertReport> convert(const Checkpoint& checkpoint, const ConvertOptions& options) {
  return Conversion(checkpoint, options).run();
}

}  // namespace kipp
