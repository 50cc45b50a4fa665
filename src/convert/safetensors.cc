#include "convert/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/mmap_file.h"

namespace kipp {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxRank = 8;

struct DTypeEntry {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<DTypeEntry, 4> kDTypes{{{DType::bf16, "BF16", 2},
                                             {DType::f32, "F32", 4},
                                             {DType::i8, "I8", 1},
                                             {DType::i32, "I32", 4}}};

const DTypeEntry& entry(DType dtype) {
  return *std::find_if(kDTypes.begin(), kDTypes.end(),
                       [dtype](const DTypeEntry& e) { return e.dtype == dtype; });
}

// Names end up in messages, so they must not hold what would disturb a terminal or fill it.
bool is_plain(std::string_view text) {
  return !text.empty() && text.size() <= 200 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c != '\x7f'; });
}

// What the header says about one tensor, before any of it is believed.
struct Declared {
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

// The header has one shape of JSON, so it is read as events: no tree of unbounded depth or size is
// built, and a key that stands twice, which a tree would swallow, is seen.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::map<std::string, Declared, std::less<>> tensors;
  Safetensors::Metadata metadata;
  std::string problem;  // set when an event returned false

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is not an unsigned integer");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::numbers) return unexpected("a number");
    if (numbers_->size() == kMaxRank) {
      problem = fmt::format("{}: expected at most {} numbers, found more", where(), kMaxRank);
      return false;
    }
    numbers_->push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::metadata) {
      metadata[field_] = value;
      return true;
    }
    if (state_ != State::tensor || field_ != "dtype") return unexpected("a string");
    if (!is_plain(value)) return unexpected("control characters or an endless string");
    tensor_->dtype = value;
    return true;
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::start:
        state_ = State::names;
        return true;
      case State::name_seen:
        field_.clear();
        state_ = tensor_ == nullptr ? State::metadata : State::tensor;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(string_t& value) override {
    if (!is_plain(value)) {
      problem = fmt::format("{}: expected short printable keys, found another", where());
      return false;
    }
    if (state_ == State::names) {
      name_ = value;
      field_.clear();
      state_ = State::name_seen;
      if (value == "__metadata__") {
        tensor_ = nullptr;
        return !std::exchange(metadata_seen_, true) || twice();
      }
      const auto [place, added] = tensors.try_emplace(value);
      tensor_ = &place->second;
      return added || twice();
    }
    field_ = value;
    if (state_ == State::metadata) return !metadata.contains(field_) || twice();
    if (field_ == "dtype") return !tensor_->dtype || twice();
    if (field_ == "shape") return !tensor_->shape || twice();
    if (field_ == "data_offsets") return !tensor_->offsets || twice();
    problem = fmt::format("{}: expected dtype, shape or data_offsets, found {}", name_, field_);
    return false;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::tensor || (field_ != "shape" && field_ != "data_offsets")) {
      return unexpected("an array");
    }
    numbers_ = &(field_ == "shape" ? tensor_->shape : tensor_->offsets).emplace();
    state_ = State::numbers;
    return true;
  }

  bool end_array() override {
    state_ = State::tensor;
    return true;
  }

  bool end_object() override {
    state_ = state_ == State::names ? State::end : State::names;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem = fmt::format("header: expected valid JSON, found an error at byte {} of it", position);
    return false;
  }

 private:
  enum class State : std::uint8_t { start, names, name_seen, tensor, metadata, numbers, end };

  std::string where() const {
    if (state_ == State::start) return "header";
    return field_.empty() ? name_ : fmt::format("{}.{}", name_, field_);
  }
  bool twice() {
    problem = fmt::format("{}: expected it once, found it twice", where());
    return false;
  }
  bool unexpected(std::string_view found) {
    std::string_view expected = "an object";
    if (state_ == State::metadata) expected = "a string";
    if (state_ == State::numbers) expected = "unsigned integers";
    if (state_ == State::tensor) expected = field_ == "dtype" ? "a string" : "an array";
    problem = fmt::format("{}: expected {}, found {}", where(), expected, found);
    return false;
  }

  State state_ = State::start;
  std::string name_;
  std::string field_;
  Declared* tensor_ = nullptr;
  std::vector<std::uint64_t>* numbers_ = nullptr;
  bool metadata_seen_ = false;
};

Result<SafetensorsView> check_tensor(std::string_view label, std::string_view name,
                                     const Declared& declared, std::span<const std::byte> data) {
  if (!declared.dtype || !declared.shape || !declared.offsets) {
    return fail(ErrorCode::refused, "{}: {}: expected a {}, found none", label, name,
                !declared.dtype   ? "dtype"
                : !declared.shape ? "shape"
                                  : "data_offsets");
  }
  const auto type = std::find_if(kDTypes.begin(), kDTypes.end(),
                                 [&](const DTypeEntry& e) { return e.name == *declared.dtype; });
  if (type == kDTypes.end()) {
    return fail(ErrorCode::refused, "{}: {}.dtype: expected BF16, F32, I8 or I32, found {}", label,
                name, *declared.dtype);
  }
  SafetensorsView view;
  view.dtype = type->dtype;
  std::uint64_t bytes = type->bytes;
  for (const std::uint64_t dimension : *declared.shape) {
    // Bounding by the data's size at each step keeps the product from overflowing.
    if (dimension == 0 || dimension > data.size() / bytes) {
      return fail(ErrorCode::refused,
                  "{}: {}.shape: expected dimensions that fit into {} bytes of data, found {}",
                  label, name, data.size(), fmt::format("[{}]", fmt::join(*declared.shape, ", ")));
    }
    bytes *= dimension;
    view.shape.push_back(static_cast<std::int64_t>(dimension));
  }
  const auto& offsets = *declared.offsets;
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size()) {
    return fail(
        ErrorCode::refused,
        "{}: {}.data_offsets: expected a begin and an end within {} bytes of data, found {}", label,
        name, data.size(), fmt::format("[{}]", fmt::join(offsets, ", ")));
  }
  if (offsets[1] - offsets[0] != bytes) {
    return fail(ErrorCode::refused, "{}: {}.data_offsets: expected {} bytes for {} {}, found {}",
                label, name, bytes, type->name, shape_text(view.shape), offsets[1] - offsets[0]);
  }
  view.bytes = data.subspan(offsets[0], bytes);
  return view;
}

// Every byte of the data belongs to exactly one tensor.
Result<void> check_cover(std::string_view label, const Safetensors::Tensors& tensors,
                         std::span<const std::byte> data) {
  std::vector<const Safetensors::Tensors::value_type*> in_order;
  for (const auto& tensor : tensors) in_order.push_back(&tensor);
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return a->second.bytes.data() < b->second.bytes.data();
  });
  std::size_t at = 0;
  std::string_view before = "the header";
  for (const auto* tensor : in_order) {
    const auto begin = static_cast<std::size_t>(tensor->second.bytes.data() - data.data());
    if (begin != at) {
      return fail(ErrorCode::refused,
                  "{}: {}.data_offsets: expected begin {}, right after {}, found {}: {}", label,
                  tensor->first, at, before, begin,
                  begin < at ? "they overlap" : "bytes of no tensor");
    }
    at = begin + tensor->second.bytes.size();
    before = tensor->first;
  }
  if (at != data.size()) {
    return fail(ErrorCode::refused, "{}: file length: expected {} bytes of tensors, found {}",
                label, at, data.size());
  }
  return {};
}

}  // namespace

std::string_view to_string(DType dtype) { return entry(dtype).name; }
std::size_t dtype_bytes(DType dtype) { return entry(dtype).bytes; }

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<Safetensors> Safetensors::open(const std::string& path) {
  KIPP_TRY_ASSIGN(mapping, MmapFile::open(path));
  KIPP_TRY_ASSIGN(file, from_bytes(mapping->bytes(), path));
  file.mapping_ = mapping;
  return std::move(file);
}

Result<Safetensors> Safetensors::from_bytes(std::span<const std::byte> file,
                                            std::string_view label) {
  if (file.size() < kLengthBytes) {
    return fail(ErrorCode::refused, "{}: expected a header length of {} bytes, found a file of {}",
                label, kLengthBytes, file.size());
  }
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(file[i]);
  }
  const std::uint64_t limit =
      std::min<std::uint64_t>(kMaxSafetensorsHeader, file.size() - kLengthBytes);
  if (length < 2 || length > limit) {
    return fail(ErrorCode::refused, "{}: header length: expected 2 to {} bytes, found {}", label,
                limit, length);
  }
  const auto header = file.subspan(kLengthBytes, length);
  const auto data = file.subspan(kLengthBytes + length);
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  // The JSON reader would skip a byte order mark and take a NUL for the end.
  if (text.front() != '{' || text.find('\0') != std::string_view::npos) {
    return fail(ErrorCode::refused,
                "{}: header: expected JSON text that starts with '{{', found {}", label,
                text.front() != '{' ? "another byte" : "a NUL byte in it");
  }
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) {
    return fail(ErrorCode::refused, "{}: {}", label, reader.problem);
  }
  Safetensors out;
  out.header_bytes_ = kLengthBytes + length;
  out.metadata_ = std::move(reader.metadata);
  for (const auto& [name, declared] : reader.tensors) {
    KIPP_TRY_ASSIGN(view, check_tensor(label, name, declared, data));
    out.tensors_.emplace(name, std::move(view));
  }
  KIPP_TRY(check_cover(label, out.tensors_, data));
  return out;
}

const SafetensorsView* Safetensors::find(std::string_view name) const {
  const auto place = tensors_.find(name);
  return place == tensors_.end() ? nullptr : &place->second;
}

}  // namespace kipp
