// A GGUF file taken apart so that a test can spoil one field and put it together again. Written
// from the GGUF specification and sharing nothing with the product's reader or writer, so that the
// two check each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kipp::test {

using Bytes = std::vector<std::byte>;

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string raw_text(std::string_view text) {
  return raw(static_cast<std::uint64_t>(text.size())) + std::string(text);
}

inline std::string raw_array(std::uint32_t element, std::uint64_t count,
                             const std::string& elements) {
  return raw(element) + raw(count) + elements;
}

// Type numbers of the specification.
inline constexpr std::uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9,
                               kU64 = 10;

struct EditableGguf {
  struct Value {
    std::string key;
    std::uint32_t type = 0;
    std::string bytes;  // of the value, as stored
  };
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
  };

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  // What the header says; absent: the truth.
  std::optional<std::uint64_t> n_tensors;
  std::optional<std::uint64_t> n_values;
  std::vector<Value> values;
  std::vector<Tensor> tensors;
  char padding = '\0';
  std::string data;

  Value& value(std::string_view key) {
    for (Value& v : values) {
      if (v.key == key) return v;
    }
    throw std::out_of_range("no key " + std::string(key));
  }
  Tensor& tensor(std::string_view name) {
    for (Tensor& t : tensors) {
      if (t.name == name) return t;
    }
    throw std::out_of_range("no tensor " + std::string(name));
  }
  void remove(std::string_view key) {
    std::erase_if(values, [key](const Value& v) { return v.key == key; });
  }
  void set(std::string_view key, std::uint32_t number) {
    value(key) = {std::string(key), kU32, raw(number)};
  }
  void set(std::string_view key, std::string_view text) {
    value(key) = {std::string(key), kString, raw_text(text)};
  }

  static std::string head_of(const Value& v) { return raw_text(v.key) + raw(v.type) + v.bytes; }
  static std::string head_of(const Tensor& t) {
    std::string out = raw_text(t.name) + raw(static_cast<std::uint32_t>(t.dims.size()));
    for (const std::uint64_t dim : t.dims) out += raw(dim);
    return out + raw(t.type) + raw(t.offset);
  }

  // Header, metadata and tensor table, padded to 64 bytes.
  std::string head() const {
    std::string out = magic + raw(version) + raw(n_tensors.value_or(tensors.size())) +
                      raw(n_values.value_or(values.size()));
    for (const Value& v : values) out += head_of(v);
    for (const Tensor& t : tensors) out += head_of(t);
    out.resize((out.size() + 63) / 64 * 64, padding);
    return out;
  }

  Bytes bytes() const {
    const std::string first = head();
    Bytes out(first.size() + data.size());
    std::memcpy(out.data(), first.data(), first.size());
    std::memcpy(out.data() + first.size(), data.data(), data.size());
    return out;
  }

  // Where each field of the head begins and ends; strings inside arrays are not looked at.
  std::vector<std::size_t> boundaries() const {
    std::vector<std::size_t> at = {0, 4, 8, 16, 24};
    const auto step = [&](std::size_t n) { at.push_back(at.back() + n); };
    for (const Value& v : values) {
      step(8);
      step(v.key.size());
      step(4);
      if (v.type == kString) step(8);
      if (v.type == kArray) {
        step(4);
        step(8);
      }
      step(v.bytes.size() - (v.type == kString ? 8 : v.type == kArray ? 12 : 0));
    }
    for (const Tensor& t : tensors) {
      step(8);
      step(t.name.size());
      step(4);
      for (std::size_t i = 0; i < t.dims.size(); ++i) step(8);
      step(4);
      step(8);
    }
    return at;
  }

  static EditableGguf parse(const Bytes& file) {
    EditableGguf gguf;
    std::size_t at = 0;
    const auto take = [&](std::size_t n) {
      if (n > file.size() - at) throw std::out_of_range("file ends early");
      std::string slice(reinterpret_cast<const char*>(file.data()) + at, n);
      at += n;
      return slice;
    };
    const auto number = [&]<class T>(T) {
      T value;
      std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
      return value;
    };
    const auto u32 = [&] { return number(std::uint32_t{}); };
    const auto u64 = [&] { return number(std::uint64_t{}); };
    constexpr std::size_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    gguf.magic = take(4);
    gguf.version = u32();
    const std::uint64_t tensor_count = u64();
    const std::uint64_t value_count = u64();
    for (std::uint64_t i = 0; i < value_count; ++i) {
      Value v;
      v.key = take(u64());
      v.type = u32();
      const std::size_t begin = at;
      if (v.type == kString) {
        take(u64());
      } else if (v.type == kArray) {
        const std::uint32_t element = u32();
        const std::uint64_t count = u64();
        if (element == kString) {
          for (std::uint64_t k = 0; k < count; ++k) take(u64());
        } else {
          take(count * kWidths[element]);
        }
      } else {
        take(kWidths[v.type]);
      }
      v.bytes.assign(reinterpret_cast<const char*>(file.data()) + begin, at - begin);
      gguf.values.push_back(std::move(v));
    }
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
      Tensor t;
      t.name = take(u64());
      const std::uint32_t n_dims = u32();
      for (std::uint32_t d = 0; d < n_dims; ++d) t.dims.push_back(u64());
      t.type = u32();
      t.offset = u64();
      gguf.tensors.push_back(std::move(t));
    }
    at = (at + 63) / 64 * 64;
    gguf.data = take(file.size() - at);
    return gguf;
  }
};

}  // namespace kipp::test
