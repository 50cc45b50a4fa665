// Lets the Python tests and benchmarks reach the tokenizer. Reads strings from standard input, each
// a u32 length and its bytes, and answers each with a u32 count and then, by the mode that the only
// argument names:
//   control     u32 ids, added tokens being control tokens
//   text        u32 ids, added tokens being ordinary text
//   pieces      u32 sizes of the pieces of the normalized text
//   round-trip  the bytes of decode(encode(text)), added tokens being ordinary text
// All numbers are little-endian.
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/pretokenize.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace {

template <class Items>
void answer(const Items& items) {
  const auto count = static_cast<std::uint32_t>(items.size());
  std::fwrite(&count, sizeof count, 1, stdout);
  if (!items.empty()) std::fwrite(items.data(), sizeof items[0], items.size(), stdout);
}

std::vector<std::uint32_t> piece_sizes(std::string_view text) {
  std::string buffer;
  std::vector<std::uint32_t> sizes;
  for (kipp::PieceScanner pieces(kipp::to_nfc(text, buffer)); !pieces.done();) {
    sizes.push_back(static_cast<std::uint32_t>(pieces.next().size()));
  }
  return sizes;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 2 ? argv[1] : "";
  if (mode != "control" && mode != "text" && mode != "pieces" && mode != "round-trip") {
    std::fprintf(stderr, "tokenize_probe: expected control, text, pieces or round-trip\n");
    return 2;
  }
  const kipp::Tokenizer tokenizer;
  std::string text;
  for (std::uint32_t size = 0; std::fread(&size, sizeof size, 1, stdin) == 1;) {
    text.resize(size);
    if (std::fread(text.data(), 1, size, stdin) != size) {
      std::fprintf(stderr, "tokenize_probe: standard input ends inside a string\n");
      return 1;
    }
    if (mode == "control") {
      answer(tokenizer.encode(text, kipp::AddedTokens::as_control));
    } else if (mode == "text") {
      answer(tokenizer.encode(text, kipp::AddedTokens::as_text));
    } else if (mode == "pieces") {
      answer(piece_sizes(text));
    } else {
      answer(tokenizer.decode(tokenizer.encode(text, kipp::AddedTokens::as_text), false));
    }
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
