#include "model/artifact_checks.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace kipp {
namespace {

std::string describe(const MetadataValue& value) {
  struct Describer {
    std::string operator()(std::uint32_t v) const { return fmt::format("u32 {}", v); }
    std::string operator()(float v) const { return fmt::format("f32 {}", v); }
    std::string operator()(bool v) const { return fmt::format("bool {}", v); }
    std::string operator()(const std::string& v) const { return "string " + quote(v); }
  };
  return std::visit(Describer{}, value);
}

bool equals(const GgufValue& found, const MetadataValue& expected) {
  struct Comparer {
    const GgufValue& f;
    bool operator()(std::uint32_t v) const { return f.type == GgufType::u32 && f.bits == v; }
    bool operator()(float v) const {
      return f.type == GgufType::f32 && f.bits == std::bit_cast<std::uint32_t>(v);
    }
    bool operator()(bool v) const {
      return f.type == GgufType::boolean && f.bits == static_cast<std::uint64_t>(v);
    }
    bool operator()(const std::string& v) const {
      return f.type == GgufType::string && f.text == v;
    }
  };
  return std::visit(Comparer{found}, expected);
}

Result<const GgufValue*> source_array(const Gguf& gguf, std::string_view key) {
  const GgufValue* value = gguf.find(key);
  if (value != nullptr && (value->type != GgufType::array || value->element != GgufType::string)) {
    return fail(ErrorCode::refused, "{}: expected an array of strings, found {}", key,
                describe(*value));
  }
  return value;
}

std::string shape_text(std::span<const std::uint64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

Result<void> check_tensor(const GgufTensor& found, const TensorSpec& spec, GgmlType type) {
  const std::array<std::uint64_t, 2> dims = {static_cast<std::uint64_t>(spec.cols),
                                             static_cast<std::uint64_t>(spec.rows)};
  const std::size_t n_dims = spec.role == TensorRole::norm ? 1 : 2;
  const std::span<const std::uint64_t> expected(dims.data(), n_dims);
  const std::span<const std::uint64_t> actual(found.dims.data(), found.n_dims);
  if (!std::equal(expected.begin(), expected.end(), actual.begin(), actual.end())) {
    return fail(ErrorCode::refused, "shape of {}: expected {}, found {}", spec.name,
                shape_text(expected), shape_text(actual));
  }
  if (found.type != static_cast<std::uint32_t>(type)) {
    const std::string_view name = to_string(static_cast<GgmlType>(found.type));
    return fail(ErrorCode::refused, "type of {}: expected {} ({}), found {} ({})", spec.name,
                to_string(type), static_cast<std::uint32_t>(type), name.empty() ? "another" : name,
                found.type);
  }
  return {};
}

}  // namespace

Result<std::string_view> identity_text(const Gguf& gguf, std::string_view key) {
  constexpr std::size_t kMostBytes = 128;
  const GgufValue* value = gguf.find(key);
  if (value == nullptr) {
    return fail(ErrorCode::refused,
                "{}: expected the key that kipp writes, found none; kipp reads only artifacts "
                "made by kipp convert, quantize or synthesize",
                key);
  }
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (value->type != GgufType::string || value->text.size() > kMostBytes ||
      !std::all_of(value->text.begin(), value->text.end(), printable)) {
    return fail(ErrorCode::refused, "{}: expected a printable string of at most {} bytes, found {}",
                key, kMostBytes, describe(*value));
  }
  return value->text;
}

Result<void> check_metadata(const Gguf& gguf, const Checkpoint& entry,
                            std::span<const MetadataEntry> expected) {
  for (const MetadataEntry& wanted : expected) {
    const GgufValue* found = gguf.find(wanted.key);
    if (found == nullptr) {
      return fail(ErrorCode::refused, "{}: expected {}, found no such key", wanted.key,
                  describe(wanted.value));
    }
    if (!equals(*found, wanted.value)) {
      return fail(ErrorCode::refused, "{}: expected {}, found {}", wanted.key,
                  describe(wanted.value), describe(*found));
    }
  }
  const auto known = [&](std::string_view key) {
    const bool has_sources = !entry.files.empty();
    return (has_sources && (key == kSourceFilesKey || key == kSourceHashesKey)) ||
           std::any_of(expected.begin(), expected.end(),
                       [key](const MetadataEntry& wanted) { return wanted.key == key; }) ||
           std::any_of(vocabulary_pins().begin(), vocabulary_pins().end(),
                       [key](const ArrayPin& pin) { return pin.key == key; });
  };
  for (const GgufValue& value : gguf.values) {
    if (!known(value.key)) {
      return fail(ErrorCode::refused, "{}: expected no key of that name in this artifact, found {}",
                  value.key, describe(value));
    }
  }
  return {};
}

Result<void> check_vocabulary(const Gguf& gguf) {
  for (const ArrayPin& pin : vocabulary_pins()) {
    const GgufValue* found = gguf.find(pin.key);
    if (found == nullptr || found->type != GgufType::array || found->element != pin.element ||
        found->count != pin.count) {
      return fail(ErrorCode::refused, "{}: expected an array of {} {} values, found {}", pin.key,
                  pin.count, to_string(pin.element),
                  found == nullptr ? "no such key" : describe(*found));
    }
    if (found->raw.size() != pin.bytes) {
      return fail(ErrorCode::refused, "{}: expected {} bytes, Qwen's table, found {}", pin.key,
                  pin.bytes, found->raw.size());
    }
    if (const std::string hash = xxh128_hex(found->raw); hash != pin.xxh128) {
      return fail(ErrorCode::refused,
                  "{}: expected Qwen's table with XXH3-128 {}, found one with {}", pin.key,
                  pin.xxh128, hash);
    }
  }
  return {};
}

Result<std::vector<SourceFile>> check_source_files(const Gguf& gguf, const Checkpoint& entry) {
  KIPP_TRY_ASSIGN(names, source_array(gguf, kSourceFilesKey));
  KIPP_TRY_ASSIGN(hashes, source_array(gguf, kSourceHashesKey));
  const std::uint64_t n_names = names == nullptr ? 0 : names->count;
  const std::uint64_t n_hashes = hashes == nullptr ? 0 : hashes->count;
  if (n_names > entry.files.size() || n_names != n_hashes) {
    return fail(ErrorCode::refused,
                "{}: expected at most the {} files of {} with one {} each, found {} and {}",
                kSourceFilesKey, entry.files.size(), entry.id, kSourceHashesKey, n_names, n_hashes);
  }
  std::vector<SourceFile> listed;
  for (std::size_t i = 0; i < n_names; ++i) {
    const SourceFile file{names->element_text(i), hashes->element_text(i)};
    const auto pinned =
        std::find_if(entry.files.begin(), entry.files.end(),
                     [&](const PinnedFile& candidate) { return candidate.name == file.name; });
    if (pinned == entry.files.end()) {
      return fail(ErrorCode::refused, "{}: expected names of files of {}, found {}",
                  kSourceFilesKey, entry.id, quote(file.name));
    }
    const auto same_name = [&](const SourceFile& other) { return other.name == file.name; };
    if (std::any_of(listed.begin(), listed.end(), same_name)) {
      return fail(ErrorCode::refused, "{}: expected each file once, found {} again",
                  kSourceFilesKey, file.name);
    }
    const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    const bool matches = pinned->sha256.empty()
                             ? file.sha256.size() == 64 &&
                                   std::all_of(file.sha256.begin(), file.sha256.end(), is_hex)
                             : file.sha256 == pinned->sha256;
    if (!matches) {
      return fail(ErrorCode::refused, "{} of {}: expected {}, found {}", kSourceHashesKey,
                  file.name, pinned->sha256.empty() ? "64 hex digits" : pinned->sha256,
                  quote(file.sha256));
    }
    listed.push_back(file);
  }
  for (const PinnedFile& pinned : entry.files) {
    const auto is_it = [&](const SourceFile& file) { return file.name == pinned.name; };
    if (pinned.name.ends_with(".safetensors") &&
        std::none_of(listed.begin(), listed.end(), is_it)) {
      return fail(ErrorCode::refused, "{}: expected {} in the list, found {} names without it",
                  kSourceFilesKey, pinned.name, listed.size());
    }
  }
  return listed;
}

Result<std::vector<StoredTensor>> match_tensors(const Gguf& gguf, const ModelConfig& config,
                                                Scheme scheme) {
  const std::vector<TensorSpec> specs = artifact_tensors(config);
  std::unordered_map<std::string_view, const GgufTensor*> by_name;
  for (const GgufTensor& tensor : gguf.tensors) {
    if (!by_name.emplace(tensor.name, &tensor).second) {
      return fail(ErrorCode::refused, "tensor {}: expected it once, found it again", tensor.name);
    }
  }
  std::vector<StoredTensor> stored;
  stored.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    const auto it = by_name.find(spec.name);
    if (it == by_name.end()) {
      return fail(ErrorCode::refused,
                  "tensor {}: expected it among {} tensors, found {} without it", spec.name,
                  specs.size(), gguf.tensors.size());
    }
    const GgmlType type = stored_type(spec.role, scheme);
    KIPP_TRY(check_tensor(*it->second, spec, type));
    stored.push_back({spec, type, it->second->offset, {}});
    by_name.erase(it);
  }
  if (!by_name.empty()) {
    return fail(ErrorCode::refused, "tensor {}: expected no tensor of that name, found one",
                by_name.begin()->first);
  }
  return stored;
}

Result<void> place_tensors(std::span<const std::byte> file, std::uint64_t table_end, Scheme scheme,
                           std::vector<StoredTensor>& tensors) {
  std::stable_sort(
      tensors.begin(), tensors.end(),
      [](const StoredTensor& a, const StoredTensor& b) { return a.offset < b.offset; });
  const std::uint64_t data_at = gguf_align(table_end);
  std::uint64_t next = 0;
  for (StoredTensor& tensor : tensors) {
    if (tensor.offset != next) {
      const std::string_view why = tensor.offset % kGgufAlignment != 0 ? "misaligned"
                                   : tensor.offset < next              ? "overlapping"
                                                                       : "a gap";
      return fail(ErrorCode::refused, "offset of {}: expected {}, found {} ({})", tensor.spec.name,
                  next, tensor.offset, why);
    }
    tensor.offset += data_at;
    next = gguf_align(next + stored_bytes(tensor.spec, scheme));
  }
  const std::uint64_t expected = data_at + next;
  if (file.size() != expected) {
    const bool cut = file.size() < expected;
    return fail(ErrorCode::refused, "file size: expected {} bytes, found {} ({} {})", expected,
                file.size(), cut ? expected - file.size() : file.size() - expected,
                cut ? "missing, an incomplete copy" : "too many");
  }
  const auto padding = file.subspan(table_end, data_at - table_end);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return fail(ErrorCode::refused,
                "padding before the data: expected {} zero bytes, found other values",
                padding.size());
  }
  for (StoredTensor& tensor : tensors) {
    tensor.data = file.subspan(tensor.offset, stored_bytes(tensor.spec, scheme));
  }
  return {};
}

std::span<const float> norm_values(const StoredTensor& tensor) {
  return {reinterpret_cast<const float*>(tensor.data.data()),
          static_cast<std::size_t>(tensor.spec.cols)};
}

Result<void> check_norms(std::span<const StoredTensor> tensors) {
  for (const StoredTensor& tensor : tensors) {
    if (tensor.spec.role != TensorRole::norm) continue;
    const std::span<const float> values = norm_values(tensor);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(values[i]);
      if ((bits & 0xffffu) != 0 || (bits & 0x7f800000u) == 0x7f800000u) {
        return fail(ErrorCode::refused,
                    "{} element {}: expected a finite value that BF16 holds exactly, found "
                    "0x{:08x}",
                    tensor.spec.name, i, bits);
      }
    }
  }
  return {};
}

}  // namespace kipp
