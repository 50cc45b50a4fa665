// The loader on arbitrary bytes. The first byte chooses how the rest is used:
//   0        raw: the bytes are the file
//   1, 2, 3  spliced: records of (offset, length, bytes) are written over, put into or cut out of
//   the head of a
//            valid file whose vocabulary is left out, so that thousands of files a second come past
//            the magic and each check is tried on its own
//   4        the same over a whole valid artifact, vocabulary and all, through Artifact::from_bytes
// Whatever the bytes: an error says what was expected, and what is accepted lies inside the file.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "convert/gguf_writer.h"
#include "convert/synthesize.h"
#include "model/artifact.h"
#include "model/artifact_checks.h"
#include "model/gguf_reader.h"

namespace {

using namespace kipp;

void check(bool holds) {
  if (!holds) std::abort();
}

template <class T>
void check_error(const Result<T>& result) {
  if (result) return;
  check(result.error().message.find("expected") != std::string::npos);
  check(result.error().message.size() < 2000);
}

const Checkpoint& tiny() {
  static const Checkpoint& entry = **find_synthetic("tiny-tied");
  return entry;
}

void add_metadata(GgufHead& head) {
  for (const MetadataEntry& entry : artifact_metadata(tiny(), Scheme::bf16, "seed-0")) {
    std::visit([&](const auto& value) { head.add(entry.key, value); }, entry.value);
  }
}

void add_tensors(GgufHead& head) {
  for (const TensorSpec& spec : artifact_tensors(tiny().config)) {
    const std::uint64_t dims[] = {static_cast<std::uint64_t>(spec.cols),
                                  static_cast<std::uint64_t>(spec.rows)};
    head.add_tensor(spec.name, std::span(dims, spec.role == TensorRole::norm ? 1 : 2),
                    stored_type(spec.role, Scheme::bf16), stored_bytes(spec, Scheme::bf16));
  }
}

// Everything but the vocabulary, of which each array has two elements.
std::string small_head(std::uint64_t& data_bytes) {
  GgufHead head;
  add_metadata(head);
  const std::vector<std::string> texts = {"a", "bc"};
  const std::vector<std::int32_t> numbers = {1, 3};
  head.add(kSourceFilesKey, texts);
  head.add(kSourceHashesKey, texts);
  head.add(vocabulary_pins()[kTokensPin].key, texts);
  head.add(vocabulary_pins()[kTokenTypesPin].key, numbers);
  head.add(vocabulary_pins()[kMergesPin].key, texts);
  add_tensors(head);
  data_bytes = head.data_bytes();
  return head.finish();
}

// Records of a 16-bit offset, a length byte and, unless cutting, so many bytes.
class Splicer {
 public:
  explicit Splicer(std::string_view input) : input_(input) {}

  bool next(std::size_t& offset, std::string_view& bytes, std::size_t& length, bool cutting) {
    if (input_.size() < 3) return false;
    offset = static_cast<unsigned char>(input_[0]) + 256u * static_cast<unsigned char>(input_[1]);
    length = static_cast<unsigned char>(input_[2]);
    input_.remove_prefix(3);
    bytes = cutting ? std::string_view() : input_.substr(0, length);
    input_.remove_prefix(bytes.size());
    return true;
  }

 private:
  std::string_view input_;
};

void splice(std::string& head, int mode, std::string_view input) {
  Splicer splicer(input);
  std::size_t offset, length;
  std::string_view bytes;
  while (splicer.next(offset, bytes, length, mode == 3)) {
    offset %= head.size() + 1;
    if (mode == 1) head.replace(offset, bytes.size(), bytes);
    if (mode == 2) head.insert(offset, bytes);
    if (mode == 3) head.erase(offset, length);
    if (head.size() > (1u << 16)) return;
  }
}

void try_bytes(std::span<const std::byte> file) {
  const auto artifact = Artifact::from_bytes(file, {.allow_synthetic = true});
  check_error(artifact);
  if (!artifact) return;
  unsigned sum = 0;
  for (const StoredTensor& tensor : artifact->tensors()) {
    check(tensor.offset + tensor.data.size() <= file.size());
    sum += static_cast<unsigned>(tensor.data.back());
  }
  const auto& merges = artifact->vocabulary().merges;
  sum += static_cast<unsigned>(merges.front().size() + merges.back().size());
  static volatile unsigned sink;
  sink = sum;
}

void try_spliced(int mode, std::string_view input) {
  static std::uint64_t data_bytes = 0;
  static const std::string valid = small_head(data_bytes);
  static std::vector<std::byte> file((1u << 17) + data_bytes);
  std::string head = valid;
  splice(head, mode, input);
  head.resize(gguf_align(head.size()), '\0');
  std::memcpy(file.data(), head.data(), head.size());
  const std::span<const std::byte> whole(file.data(), head.size() + data_bytes);

  const auto gguf = read_gguf(whole);
  check_error(gguf);
  if (gguf) {
    check_error(check_metadata(*gguf, tiny(), artifact_metadata(tiny(), Scheme::bf16, "seed-0")));
    check_error(check_source_files(*gguf, **find_checkpoint("qwen3-1.7b")));
    check_error(check_vocabulary(*gguf));
    auto tensors = match_tensors(*gguf, tiny().config, Scheme::bf16);
    check_error(tensors);
    if (tensors) {
      const auto placed = place_tensors(whole, gguf->table_end, Scheme::bf16, *tensors);
      check_error(placed);
      if (placed) check_error(check_norms(*tensors));
    }
  }
  check_error(Artifact::from_bytes(whole, {.allow_synthetic = true}));
  std::memset(file.data(), 0, head.size());
}

// A whole artifact of zeros. Splices reach the fields before the vocabulary and those behind it.
void try_whole(std::string_view input) {
  static const std::vector<std::byte> valid = [] {
    const std::string path = std::string(std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp") +
                             "/kipp-gguf-fuzz-" + std::to_string(::getpid()) + ".gguf";
    check(synthesize(path, tiny(), 7, Scheme::bf16, {}).has_value());
    std::vector<std::byte> bytes(std::filesystem::file_size(path));
    std::ifstream(path, std::ios::binary)
        .read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    std::filesystem::remove(path);
    return bytes;
  }();
  static std::vector<std::byte> file = valid;
  static const auto gguf = read_gguf(valid);
  static const std::size_t first =
      static_cast<std::size_t>(reinterpret_cast<const std::byte*>(
                                   gguf->find(vocabulary_pins()[kTokensPin].key)->key.data()) -
                               valid.data());
  static const std::span<const std::byte> merges =
      gguf->find(vocabulary_pins()[kMergesPin].key)->raw;
  static const std::size_t behind =
      static_cast<std::size_t>(merges.data() + merges.size() - valid.data());
  const std::size_t reach = first + 40 + (gguf->table_end - behind);

  Splicer splicer(input);
  std::size_t offset, length;
  std::string_view bytes;
  std::vector<std::pair<std::size_t, std::size_t>> touched;
  while (splicer.next(offset, bytes, length, false)) {
    offset %= reach;
    const std::size_t at = offset < first + 40 ? offset : behind + (offset - first - 40);
    std::memcpy(file.data() + at, bytes.data(), bytes.size());
    touched.emplace_back(at, bytes.size());
  }
  try_bytes(file);
  for (const auto& [at, n] : touched) std::memcpy(file.data() + at, valid.data() + at, n);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  // The whole artifact costs a hundred times as much, so only one byte in 256 asks for it.
  const int mode = data[0] == 4 ? 4 : data[0] % 4;
  if (mode == 0) {
    const std::vector<std::byte> file(
        reinterpret_cast<const std::byte*>(rest.data()),
        reinterpret_cast<const std::byte*>(rest.data()) + rest.size());
    try_bytes(file);
  } else if (mode == 4) {
    try_whole(rest);
  } else {
    try_spliced(mode, rest);
  }
  return 0;
}
