#include "model/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "model/config.h"

namespace kipp {
namespace {

static_assert(std::endian::native == std::endian::little, "artifacts are read in place");

// No artifact comes near these. They bound what a hostile count can make the reader do.
constexpr std::uint64_t kMaxKeys = 64;
constexpr std::uint64_t kMaxTensors = 1024;
constexpr std::uint64_t kMaxElements = kVocabRows;
constexpr std::uint64_t kMaxNameBytes = 64;  // ggml's own limit for tensor names

// Reads forward only. `what` names the field in the message.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}

  std::size_t at() const { return at_; }
  std::size_t left() const { return file_.size() - at_; }

  Result<std::span<const std::byte>> take(std::uint64_t bytes, std::string_view what) {
    if (bytes > left()) {
      return fail(ErrorCode::refused,
                  "{}: expected {} bytes at offset {}, found {} before the end of the file", what,
                  bytes, at_, left());
    }
    const auto slice = file_.subspan(at_, static_cast<std::size_t>(bytes));
    at_ += slice.size();
    return slice;
  }

  template <class T>
  Result<T> number(std::string_view what) {
    KIPP_TRY_ASSIGN(slice, take(sizeof(T), what));
    T value;
    std::memcpy(&value, slice.data(), sizeof(T));
    return value;
  }

  // Past one string, or false where text() would have an error to tell: for the 300,000 strings of
  // a vocabulary, most of the time of loading.
  bool skip_text() {
    std::uint64_t length = 0;
    if (left() < sizeof(length)) return false;
    std::memcpy(&length, file_.data() + at_, sizeof(length));
    if (length > left() - sizeof(length)) return false;
    at_ += sizeof(length) + static_cast<std::size_t>(length);
    return true;
  }

  // What was passed since `from`.
  std::span<const std::byte> since(std::size_t from) const {
    return file_.subspan(from, at_ - from);
  }

  Result<std::string_view> text(std::string_view what) {
    KIPP_TRY_ASSIGN(length, number<std::uint64_t>(what));
    KIPP_TRY_ASSIGN(slice, take(length, what));
    return std::string_view(reinterpret_cast<const char*>(slice.data()), slice.size());
  }

 private:
  std::span<const std::byte> file_;
  std::size_t at_ = 0;
};

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

// Names of keys and tensors.
Result<std::string_view> read_name(Cursor& cursor, std::string_view what) {
  KIPP_TRY_ASSIGN(name, cursor.text(what));
  if (name.empty() || name.size() > kMaxNameBytes) {
    return fail(ErrorCode::refused, "{}: expected a name of 1 to {} bytes, found {} bytes", what,
                kMaxNameBytes, name.size());
  }
  if (!std::all_of(name.begin(), name.end(), is_name_char)) {
    return fail(ErrorCode::refused,
                "{}: expected a name of lower-case letters, digits, '.', '_' and '-', found {}",
                what, quote(name));
  }
  return name;
}

Result<GgufType> read_type(Cursor& cursor, std::string_view what) {
  KIPP_TRY_ASSIGN(number, cursor.number<std::uint32_t>(what));
  if (number >= kGgufTypes) {
    return fail(ErrorCode::refused, "{}: expected a value type of 0 to {}, found {}", what,
                kGgufTypes - 1, number);
  }
  return static_cast<GgufType>(number);
}

Result<void> read_string_array(Cursor& cursor, std::string_view what, GgufValue& value) {
  constexpr std::size_t kMostBytes = std::numeric_limits<std::uint32_t>::max();
  const std::size_t begin = cursor.at();
  for (std::uint64_t i = 0; i < value.count; ++i) {
    if (!cursor.skip_text()) KIPP_TRY(cursor.text(fmt::format("{} element {}", what, i)));
    const std::size_t bytes = cursor.at() - begin;
    if (bytes > kMostBytes) {
      return fail(ErrorCode::refused, "{}: expected at most {} bytes, found {} by element {}", what,
                  kMostBytes, bytes, i);
    }
    // Grows by doubling: at most 8 bytes for each element, which took at least 8 in the file.
    value.ends.push_back(static_cast<std::uint32_t>(bytes));
  }
  value.raw = cursor.since(begin);
  return {};
}

Result<void> read_array(Cursor& cursor, std::string_view what, GgufValue& value) {
  KIPP_TRY_ASSIGN(element, read_type(cursor, what));
  KIPP_TRY_ASSIGN(count, cursor.number<std::uint64_t>(what));
  value.element = element;
  value.count = count;
  if (element == GgufType::array) {
    return fail(ErrorCode::refused, "{}: expected an array of scalars or strings, found {}", what,
                "an array of arrays");
  }
  if (count > kMaxElements) {
    return fail(ErrorCode::refused, "{}: expected at most {} elements, found {}", what,
                kMaxElements, count);
  }
  if (element == GgufType::string) return read_string_array(cursor, what, value);
  KIPP_TRY_ASSIGN(raw, cursor.take(count * gguf_width(element), what));
  value.raw = raw;
  return {};
}

Result<GgufValue> read_value(Cursor& cursor, std::uint64_t index) {
  GgufValue value;
  KIPP_TRY_ASSIGN(key, read_name(cursor, fmt::format("metadata key {}", index)));
  value.key = key;
  KIPP_TRY_ASSIGN(type, read_type(cursor, key));
  value.type = type;
  if (type == GgufType::string) {
    KIPP_TRY_ASSIGN(text, cursor.text(key));
    value.text = text;
  } else if (type == GgufType::array) {
    KIPP_TRY(read_array(cursor, key, value));
  } else {
    KIPP_TRY_ASSIGN(slice, cursor.take(gguf_width(type), key));
    std::memcpy(&value.bits, slice.data(), slice.size());
    if (type == GgufType::boolean && value.bits > 1) {
      return fail(ErrorCode::refused, "{}: expected a bool of 0 or 1, found {}", key, value.bits);
    }
  }
  return value;
}

Result<GgufTensor> read_tensor(Cursor& cursor, std::uint64_t index) {
  GgufTensor tensor;
  KIPP_TRY_ASSIGN(name, read_name(cursor, fmt::format("name of tensor {}", index)));
  tensor.name = name;
  const std::string what = fmt::format("tensor {}", name);
  KIPP_TRY_ASSIGN(n_dims, cursor.number<std::uint32_t>(what));
  if (n_dims < 1 || n_dims > tensor.dims.size()) {
    return fail(ErrorCode::refused, "{}: expected 1 to {} dimensions, found {}", what,
                tensor.dims.size(), n_dims);
  }
  tensor.n_dims = n_dims;
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < n_dims; ++i) {
    KIPP_TRY_ASSIGN(dim, cursor.number<std::uint64_t>(what));
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (dim == 0 || dim > kMost / elements) {
      return fail(ErrorCode::refused,
                  "{}: expected dimensions of at least 1 whose product is below 2^63, found "
                  "dimension {} = {}",
                  what, i, dim);
    }
    elements *= dim;
    tensor.dims[i] = dim;
  }
  KIPP_TRY_ASSIGN(type, cursor.number<std::uint32_t>(what));
  tensor.type = type;
  KIPP_TRY_ASSIGN(offset, cursor.number<std::uint64_t>(what));
  tensor.offset = offset;
  return tensor;
}

Result<void> read_magic_and_version(Cursor& cursor) {
  KIPP_TRY_ASSIGN(magic, cursor.number<std::uint32_t>("magic"));
  if (magic != kGgufMagic) {
    std::string_view bytes(reinterpret_cast<const char*>(&magic), sizeof(magic));
    return fail(ErrorCode::refused, "magic: expected \"GGUF\", found {}", quote(bytes));
  }
  KIPP_TRY_ASSIGN(version, cursor.number<std::uint32_t>("version"));
  if (version == __builtin_bswap32(kGgufVersion)) {
    return fail(ErrorCode::refused, "version: expected a little-endian {}, found a big-endian file",
                kGgufVersion);
  }
  if (version != kGgufVersion) {
    return fail(ErrorCode::refused, "version: expected {}, found {}", kGgufVersion, version);
  }
  return {};
}

Result<std::uint64_t> read_count(Cursor& cursor, std::string_view what, std::uint64_t most) {
  KIPP_TRY_ASSIGN(count, cursor.number<std::uint64_t>(what));
  if (count < 1 || count > most) {
    return fail(ErrorCode::refused, "{}: expected 1 to {}, found {}", what, most, count);
  }
  return count;
}

template <class T>
std::string describe_number(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return fmt::format("{}", value);
}

std::string describe_scalar(GgufType type, std::uint64_t bits) {
  switch (type) {
    case GgufType::i8:
      return fmt::format("{}", static_cast<int>(static_cast<std::int8_t>(bits)));
    case GgufType::i16:
      return describe_number<std::int16_t>(bits);
    case GgufType::i32:
      return describe_number<std::int32_t>(bits);
    case GgufType::i64:
      return describe_number<std::int64_t>(bits);
    case GgufType::f32:
      return describe_number<float>(bits);
    case GgufType::f64:
      return describe_number<double>(bits);
    case GgufType::boolean:
      return bits != 0 ? "true" : "false";
    default:
      return fmt::format("{}", bits);
  }
}

}  // namespace

std::string_view GgufValue::element_text(std::size_t i) const {
  const std::size_t begin = (i == 0 ? 0 : ends[i - 1]) + sizeof(std::uint64_t);
  return {reinterpret_cast<const char*>(raw.data()) + begin, ends[i] - begin};
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto it = std::find_if(values.begin(), values.end(),
                               [key](const GgufValue& value) { return value.key == key; });
  return it == values.end() ? nullptr : &*it;
}

Result<Gguf> read_gguf(std::span<const std::byte> file) {
  Cursor cursor(file);
  Gguf gguf;
  KIPP_TRY(read_magic_and_version(cursor));
  KIPP_TRY_ASSIGN(n_tensors, read_count(cursor, "tensor count", kMaxTensors));
  KIPP_TRY_ASSIGN(n_values, read_count(cursor, "metadata count", kMaxKeys));
  for (std::uint64_t i = 0; i < n_values; ++i) {
    KIPP_TRY_ASSIGN(value, read_value(cursor, i));
    if (gguf.find(value.key) != nullptr) {
      return fail(ErrorCode::refused, "{}: expected the key once, found it again as key {}",
                  value.key, i);
    }
    gguf.values.push_back(std::move(value));
  }
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    KIPP_TRY_ASSIGN(tensor, read_tensor(cursor, i));
    gguf.tensors.push_back(tensor);
  }
  gguf.table_end = cursor.at();
  return gguf;
}

std::string describe(const GgufValue& value) {
  if (value.type == GgufType::string) return "string " + quote(value.text);
  if (value.type == GgufType::array) {
    return fmt::format("array of {} {} values", value.count, to_string(value.element));
  }
  return fmt::format("{} {}", to_string(value.type), describe_scalar(value.type, value.bits));
}

std::string quote(std::string_view text) {
  constexpr std::size_t kShown = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  out += text.size() > kShown ? fmt::format("...\" ({} bytes)", text.size()) : "\"";
  return out;
}

}  // namespace kipp
