#include "convert/gguf_writer.h"

#include <bit>
#include <cstring>

namespace kipp {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are written as they lie in memory");

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

void put_type(std::string& out, GgufType type) { put(out, static_cast<std::uint32_t>(type)); }

}  // namespace

void GgufHead::key(std::string_view name, GgufType type) {
  put_text(metadata_, name);
  put_type(metadata_, type);
  ++n_keys_;
}

void GgufHead::add(std::string_view name, std::uint32_t value) {
  key(name, GgufType::u32);
  put(metadata_, value);
}

void GgufHead::add(std::string_view name, float value) {
  key(name, GgufType::f32);
  put(metadata_, value);
}

void GgufHead::add(std::string_view name, bool value) {
  key(name, GgufType::boolean);
  put(metadata_, static_cast<std::uint8_t>(value));
}

void GgufHead::add(std::string_view name, std::string_view value) {
  key(name, GgufType::string);
  put_text(metadata_, value);
}

void GgufHead::add(std::string_view name, std::span<const std::string> values) {
  key(name, GgufType::array);
  put_type(metadata_, GgufType::string);
  put(metadata_, static_cast<std::uint64_t>(values.size()));
  for (const std::string& value : values) put_text(metadata_, value);
}

void GgufHead::add(std::string_view name, std::span<const std::int32_t> values) {
  key(name, GgufType::array);
  put_type(metadata_, GgufType::i32);
  put(metadata_, static_cast<std::uint64_t>(values.size()));
  metadata_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void GgufHead::add_tensor(std::string_view name, std::span<const std::uint64_t> dims, GgmlType type,
                          std::uint64_t bytes) {
  put_text(tensors_, name);
  put(tensors_, static_cast<std::uint32_t>(dims.size()));
  for (const std::uint64_t dim : dims) put(tensors_, dim);
  put(tensors_, static_cast<std::uint32_t>(type));
  put(tensors_, next_offset_);
  next_offset_ = gguf_align(next_offset_ + bytes);
  ++n_tensors_;
}

std::string GgufHead::finish() const {
  std::string head;
  head.reserve(kGgufHeaderBytes + metadata_.size() + tensors_.size() + kGgufAlignment);
  put(head, kGgufMagic);
  put(head, kGgufVersion);
  put(head, n_tensors_);
  put(head, n_keys_);
  head += metadata_;
  head += tensors_;
  head.resize(gguf_align(head.size()), '\0');
  return head;
}

}  // namespace kipp
