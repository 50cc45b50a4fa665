// Tokenizer throughput on one thread: prose, code, Chinese, and the texts that make a tokenizer
// slow. The result of every run decodes to its text again. `--dump DIR` writes the texts there
// instead, for tools/bench_tokenizer.py.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace {

using namespace kipp;
namespace fs = std::filesystem;

constexpr std::size_t kWorstSize = 2'000'000;

struct Text {
  std::string name;
  std::string bytes;
};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// kipp's own sources.
std::string code() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(KIPP_ROOT "/src")) {
    if (entry.path().extension() == ".cc" || entry.path().extension() == ".h") {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::string out;
  for (const fs::path& path : paths) out += read_file(path);
  return out;
}

bool is_chinese(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, at);
    if (c.code_point < 0x4E00 || c.code_point > 0x9FFF) return false;
    at += c.size;
  }
  return true;
}

// Words of the vocabulary, common ones more often, between punctuation.
std::string chinese() {
  std::vector<std::string_view> words;
  for (Token id = kByteTokens; id < kFirstAddedToken; ++id) {
    const std::string_view bytes = qwen_vocabulary().token_bytes(id);
    if (is_chinese(bytes)) words.push_back(bytes);
  }
  std::mt19937 random(1);
  std::string out;
  while (out.size() < 1'000'000) {
    // Word i comes with a probability of about 1 / i.
    const double exponent = static_cast<double>(random()) / 4294967296.0;
    const double rank = std::pow(static_cast<double>(words.size()), exponent) - 1;
    out += words[static_cast<std::size_t>(rank)];
    if (random() % 8 == 0) out += random() % 3 == 0 ? "\u3002" : "\uFF0C";
  }
  return out;
}

std::string repeated(std::string_view unit) {
  std::string out;
  while (out.size() < kWorstSize) out += unit;
  return out;
}

std::string random_letters() {
  std::mt19937 random(1);
  std::string out(kWorstSize, ' ');
  for (char& c : out) c = static_cast<char>('a' + random() % 26);
  return out;
}

std::vector<Text> all_texts() {
  return {
      {"prose", read_file(KIPP_ROOT "/tests/data/prose_sample.txt")},
      {"code", code()},
      {"chinese", chinese()},
      {"one_letter", repeated("x")},
      {"spaces", repeated(" ")},
      {"newlines", repeated("\n")},
      {"blank_lines", repeated(" \n")},
      {"random_letters", random_letters()},
      {"unordered_marks", repeated("\u0301\u0323")},
      {"cut_control_tokens", repeated("<|im_st")},
  };
}

void encode(benchmark::State& state, const Text& text) {
  const Tokenizer tokenizer;
  std::vector<Token> ids;
  for (auto _ : state) {
    ids.clear();
    tokenizer.encode(text.bytes, AddedTokens::as_control, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  std::string buffer;
  if (tokenizer.decode(ids, false) != to_nfc(text.bytes, buffer)) {
    state.SkipWithError("the tokens do not decode to the text");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.bytes.size()));
  state.counters["tokens"] = static_cast<double>(ids.size());
}

void stream(benchmark::State& state, const Text& text) {
  const Tokenizer tokenizer;
  const std::vector<Token> ids = tokenizer.encode(text.bytes, AddedTokens::as_control);
  for (auto _ : state) {
    Detokenizer detokenizer(tokenizer, true);
    for (const Token id : ids) benchmark::DoNotOptimize(detokenizer.push(id));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(ids.size()));
}

int dump(const std::vector<Text>& texts, const fs::path& folder) {
  for (const Text& text : texts) {
    std::ofstream file(folder / (text.name + ".txt"), std::ios::binary);
    if (!(file << text.bytes).flush()) {
      std::fprintf(stderr, "tokenizer_bench: cannot write to %s\n", folder.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Text> texts = all_texts();
  if (argc == 3 && std::string_view(argv[1]) == "--dump") return dump(texts, argv[2]);
  for (const Text& text : texts) {
    benchmark::RegisterBenchmark(("encode/" + text.name).c_str(), encode, text);
  }
  benchmark::RegisterBenchmark("stream/prose", stream, texts[0]);
  benchmark::RegisterBenchmark("stream/chinese", stream, texts[2]);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
