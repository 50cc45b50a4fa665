// Writing an artifact: the same bytes every time, whole under its name or not there at all.
#include "convert/artifact_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/output_file.h"
#include "convert/quantize_artifact.h"
#include "model/artifact.h"
#include "support/editable_gguf.h"
#include "support/tiny_artifact.h"

namespace kipp {
namespace {

namespace fs = std::filesystem;
using test::EditableGguf;
using ::testing::HasSubstr;

const Checkpoint& tiny() { return **find_synthetic("tiny-tied"); }
ArtifactSource tiny_source() { return {std::string(tiny().repository), "seed-7", {}}; }

// A directory of its own for each test.
fs::path fresh_dir(const char* name) {
  const fs::path dir = test::scratch_dir() / name;
  fs::remove_all(dir);
  fs::create_directories(dir);
  return dir;
}

std::set<std::string> names_in(const fs::path& dir) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir))
    names.insert(entry.path().filename().string());
  return names;
}

Result<void> write_tiny(const fs::path& path, Scheme scheme, const RowSource& rows,
                        const std::atomic<bool>* cancel = nullptr) {
  return write_artifact(path.string(), tiny(), scheme, tiny_source(), rows, {}, cancel);
}

// Random rows with one value of one tensor replaced.
RowSource with_value(std::string tensor, int row, std::size_t col, std::uint16_t bits) {
  return [=, rows = synthetic_rows(tiny(), 7, 1)](std::string_view name, int first_row, int n_rows,
                                                  int cols,
                                                  std::span<std::uint16_t> out) -> Result<void> {
    KIPP_TRY(rows(name, first_row, n_rows, cols, out));
    if (name == tensor && row >= first_row && row < first_row + n_rows) {
      out[static_cast<std::size_t>(row - first_row) * static_cast<std::size_t>(cols) + col] = bits;
    }
    return {};
  };
}

TEST(ArtifactWriter, WritesTheSameBytesEveryTime) {
  const fs::path dir = fresh_dir("same");
  for (const Scheme scheme : {Scheme::bf16, Scheme::affine4_gs32}) {
    const fs::path path = dir / fmt::format("{}.gguf", to_string(scheme));
    ASSERT_TRUE(write_tiny(path, scheme, synthetic_rows(tiny(), 7, 3)));
    EXPECT_EQ(test::read_file(path), test::tiny_artifact("tiny-tied", scheme));
  }
}

TEST(ArtifactWriter, AsksForEveryRowOnceAndInFileOrder) {
  std::vector<std::string> order;
  int next_row = 0;
  const RowSource inner = synthetic_rows(tiny(), 7, 1);
  const RowSource rows = [&](std::string_view name, int first_row, int n_rows, int cols,
                             std::span<std::uint16_t> out) -> Result<void> {
    if (order.empty() || order.back() != name) {
      order.emplace_back(name);
      next_row = 0;
    }
    EXPECT_EQ(first_row, next_row) << name;
    EXPECT_EQ(out.size(), static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(cols));
    next_row += n_rows;
    return inner(name, first_row, n_rows, cols, out);
  };
  ASSERT_TRUE(write_tiny(fresh_dir("order") / "a.gguf", Scheme::bf16, rows));
  const EditableGguf gguf = EditableGguf::parse(test::tiny_artifact("tiny-tied", Scheme::bf16));
  ASSERT_EQ(order.size(), gguf.tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], gguf.tensors[i].name);
}

TEST(ArtifactWriter, ReportsProgressUpToTheFileSize) {
  const fs::path path = fresh_dir("progress") / "a.gguf";
  std::uint64_t last = 0, total = 0;
  ASSERT_TRUE(write_artifact(path.string(), tiny(), Scheme::bf16, tiny_source(),
                             synthetic_rows(tiny(), 7, 2),
                             [&](std::uint64_t done, std::uint64_t all) {
                               EXPECT_GT(done, last);
                               last = done;
                               total = all;
                             }));
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, fs::file_size(path));
}

TEST(ArtifactWriter, LeavesNothingWhenRowsFail) {
  const fs::path dir = fresh_dir("fail");
  const RowSource rows = [](std::string_view, int, int, int,
                            std::span<std::uint16_t>) -> Result<void> {
    return fail(ErrorCode::refused, "the source is broken");
  };
  const auto done = write_tiny(dir / "a.gguf", Scheme::bf16, rows);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "the source is broken");
  EXPECT_TRUE(names_in(dir).empty());
}

TEST(ArtifactWriter, StopsWhenInterruptedAndKeepsTheOldFile) {
  const fs::path dir = fresh_dir("interrupt");
  test::write_file(dir / "a.gguf", std::vector<std::byte>(3));
  std::atomic<bool> cancel{false};
  const RowSource inner = synthetic_rows(tiny(), 7, 1);
  const RowSource rows = [&](std::string_view name, int first_row, int n_rows, int cols,
                             std::span<std::uint16_t> out) -> Result<void> {
    if (name == "blk.1.ffn_up.weight") cancel = true;
    return inner(name, first_row, n_rows, cols, out);
  };
  const auto done = write_tiny(dir / "a.gguf", Scheme::bf16, rows, &cancel);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::interrupted);
  EXPECT_EQ(names_in(dir), std::set<std::string>{"a.gguf"});
  EXPECT_EQ(fs::file_size(dir / "a.gguf"), 3u);
}

TEST(ArtifactWriter, WritesOverWhatAKilledRunLeft) {
  const fs::path dir = fresh_dir("killed");
  test::write_file(dir / "a.gguf.partial", std::vector<std::byte>(40 << 20, std::byte{0x5a}));
  ASSERT_TRUE(write_tiny(dir / "a.gguf", Scheme::bf16, synthetic_rows(tiny(), 7, 2)));
  EXPECT_EQ(names_in(dir), std::set<std::string>{"a.gguf"});
  EXPECT_EQ(test::read_file(dir / "a.gguf"), test::tiny_artifact("tiny-tied", Scheme::bf16));
}

TEST(ArtifactWriter, NamesTensorAndRowOfAValueThatIsNotFinite) {
  const fs::path dir = fresh_dir("finite");
  struct Case {
    const char* tensor;
    int row;
    Scheme scheme;
  };
  for (const Case& c : {Case{"token_embd.weight", 151900, Scheme::bf16},
                        Case{"blk.2.attn_output.weight", 31, Scheme::q8_0},
                        Case{"blk.0.attn_q.weight", 1023, Scheme::scale4_gs32},
                        Case{"blk.1.attn_k_norm.weight", 0, Scheme::bf16}}) {
    const auto done = write_tiny(dir / "a.gguf", c.scheme, with_value(c.tensor, c.row, 5, 0x7f80));
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::refused);
    EXPECT_THAT(done.error().message,
                HasSubstr(fmt::format("{} row {}: column 5: expected a finite value, found inf",
                                      c.tensor, c.row)));
    EXPECT_TRUE(names_in(dir).empty());
  }
}

TEST(ArtifactWriter, RefusesTheSourceOfAnotherCheckpoint) {
  const fs::path dir = fresh_dir("identity");
  const auto done = write_artifact((dir / "a.gguf").string(), tiny(), Scheme::bf16,
                                   {"Qwen/Qwen3-0.6B", "x", {}}, synthetic_rows(tiny(), 7, 1), {});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message,
              HasSubstr("expected synthetic/tiny-tied, found Qwen/Qwen3-0.6B"));
  EXPECT_TRUE(names_in(dir).empty());
}

TEST(ArtifactWriter, QuantizingAnArtifactEqualsWritingItQuantized) {
  const auto from = Artifact::open(test::tiny_artifact_path("tiny-untied", Scheme::bf16),
                                   {.allow_synthetic = true});
  ASSERT_TRUE(from) << from.error().message;
  const fs::path dir = fresh_dir("quantize");
  for (const Scheme scheme : {Scheme::q8_0, Scheme::affine4_gs32, Scheme::scale4_gs32}) {
    const fs::path path = dir / "q.gguf";
    const auto done = quantize_artifact(*from, path.string(), scheme, {});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(test::read_file(path), test::tiny_artifact("tiny-untied", scheme))
        << to_string(scheme);
  }
}

TEST(ArtifactWriter, RefusesToQuantizeTwice) {
  const auto from = Artifact::open(test::tiny_artifact_path("tiny-tied", Scheme::q8_0),
                                   {.allow_synthetic = true});
  ASSERT_TRUE(from) << from.error().message;
  const fs::path dir = fresh_dir("twice");
  const auto done = quantize_artifact(*from, (dir / "q.gguf").string(), Scheme::scale4_gs32, {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::invalid);
  EXPECT_THAT(done.error().message, HasSubstr("expected bf16, found q8_0"));
  EXPECT_TRUE(names_in(dir).empty());
}

TEST(OutputFile, RefusesWhatTheDiskCannotHold) {
  const fs::path dir = fresh_dir("room");
  const auto file = OutputFile::create((dir / "a").string(), std::uint64_t{1} << 60);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::io);
  EXPECT_THAT(file.error().message,
              HasSubstr("expected 1152921504606846976 bytes of free disk space, found"));
  EXPECT_TRUE(names_in(dir).empty());
}

TEST(OutputFile, LetsOneWriterWork) {
  const fs::path dir = fresh_dir("lock");
  const std::string path = (dir / "a").string();
  {
    auto first = OutputFile::create(path, 1);
    ASSERT_TRUE(first) << first.error().message;
    const auto second = OutputFile::create(path, 1);
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message,
                HasSubstr("expected to be its only writer, found another at work"));
    EXPECT_EQ(names_in(dir), std::set<std::string>{"a.partial"});
  }
  EXPECT_TRUE(names_in(dir).empty());
  EXPECT_TRUE(OutputFile::create(path, 1));
}

TEST(OutputFile, CommitsOnlyWhatIsWhole) {
  const fs::path dir = fresh_dir("commit");
  auto file = OutputFile::create((dir / "deep" / "a").string(), 4);
  ASSERT_TRUE(file) << file.error().message;
  const std::vector<std::byte> three(3);
  ASSERT_TRUE(file->write(three));
  const auto early = file->commit();
  ASSERT_FALSE(early);
  EXPECT_THAT(early.error().message, HasSubstr("expected to write 4 bytes, found 3 written"));
  EXPECT_FALSE(fs::exists(dir / "deep" / "a"));
  ASSERT_TRUE(file->write(std::span(three).first(1)));
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(fs::file_size(dir / "deep" / "a"), 4u);
  EXPECT_EQ(names_in(dir / "deep"), std::set<std::string>{"a"});
}

TEST(OutputFile, RefusesADirectory) {
  const fs::path dir = fresh_dir("directory");
  const auto file = OutputFile::create(dir.string(), 1);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::invalid);
  EXPECT_THAT(file.error().message, HasSubstr("found a directory"));
}

}  // namespace
}  // namespace kipp
