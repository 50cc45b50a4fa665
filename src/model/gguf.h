// Numbers of the GGUF v3 container, shared by the reader and the writer. Only what kipp's artifacts
// use has a name; docs/MODEL_FILE.md describes the whole file byte for byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kipp {

inline constexpr std::uint32_t kGgufMagic = 0x46554747;  // "GGUF" as little-endian bytes
inline constexpr std::uint32_t kGgufVersion = 3;
inline constexpr std::size_t kGgufAlignment = 64;  // of the data section and of every tensor in it
inline constexpr std::size_t kGgufHeaderBytes = 24;

enum class GgufType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
inline constexpr std::uint32_t kGgufTypes = 13;

constexpr std::string_view to_string(GgufType type) {
  constexpr std::array<std::string_view, kGgufTypes> kNames = {
      "u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
      "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}

// Bytes of one value; 0 for strings and arrays, whose length is stored.
constexpr std::size_t gguf_width(GgufType type) {
  constexpr std::array<std::size_t, kGgufTypes> kWidths = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kWidths[static_cast<std::size_t>(type)];
}

// How ggml numbers the element types kipp stores.
enum class GgmlType : std::uint32_t { f32 = 0, q4_0 = 2, q4_1 = 3, q8_0 = 8, bf16 = 30 };

constexpr std::string_view to_string(GgmlType type) {
  switch (type) {
    case GgmlType::f32:
      return "F32";
    case GgmlType::q4_0:
      return "Q4_0";
    case GgmlType::q4_1:
      return "Q4_1";
    case GgmlType::q8_0:
      return "Q8_0";
    case GgmlType::bf16:
      return "BF16";
  }
  return "";
}

constexpr std::uint64_t gguf_align(std::uint64_t at) {
  return (at + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

}  // namespace kipp
