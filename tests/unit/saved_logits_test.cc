#include "engine/saved_logits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/tiny_model.h"

namespace kipp {
namespace {

using ::testing::HasSubstr;

class SavedLogitsFile : public ::testing::Test {
 protected:
  SavedLogitsFile() {
    for (int i = 0; i < 2; ++i) {
      std::vector<float> row(kVocabRows);
      for (std::size_t k = 0; k < row.size(); ++k)
        row[k] = static_cast<float>(k) * 0.5f - static_cast<float>(7 * i);
      rows_.push_back(std::move(row));
    }
    std::filesystem::remove(path_);
    auto writer = LogitsWriter::create(path_, identity_);
    EXPECT_TRUE(writer);
    for (const auto& row : rows_) EXPECT_TRUE(writer->write(row));
    EXPECT_TRUE(writer->commit());
  }

  // Opens the file after `change` of its bytes, and says why not.
  template <class Change>
  std::string refusal(const Change& change) {
    std::vector<std::byte> bytes = test::read_file(path_);
    change(bytes);
    const std::string path = (test::scratch_dir() / "changed.logits").string();
    test::write_file(path, bytes);
    const auto opened = SavedLogits::open(path, identity_);
    if (opened) return "";
    EXPECT_EQ(opened.error().code, ErrorCode::refused);
    return opened.error().message;
  }

  Artifact artifact_ = test::open_twin("tiny-tied", Scheme::bf16);
  std::vector<Token> tokens_ = {5, 6, 7};
  std::string path_ = (test::scratch_dir() / "saved.logits").string();
  LogitsIdentity identity_ = LogitsIdentity::of(artifact_, tokens_, 16, 8, 2);
  std::vector<std::vector<float>> rows_;
};

TEST_F(SavedLogitsFile, GivesBackEveryBit) {
  const auto saved = SavedLogits::open(path_, identity_);
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_EQ(saved->scheme(), "bf16");
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(saved->row(i), rows_[i]));
  }
}

TEST_F(SavedLogitsFile, LayoutIsAsDocumented) {
  const auto bytes = test::read_file(path_);
  ASSERT_EQ(bytes.size(), 160u + 2 * 151936 * 4);
  const std::string head(reinterpret_cast<const char*>(bytes.data()), 160);
  EXPECT_EQ(head.substr(0, 24), std::string("kippLGTS\1\0\0\0\x80\x51\2\0\2\0\0\0\0\0\0\0", 24));
  EXPECT_EQ(head.substr(24, 32), identity_.model_hash);
  EXPECT_EQ(head.substr(56, 32), identity_.text_hash);
  EXPECT_STREQ(head.substr(88, 16).c_str(), "bf16");
  EXPECT_STREQ(head.substr(104, 56).c_str(), "tiny-tied");
}

TEST_F(SavedLogitsFile, AnotherSchemeOfTheSameWeightsIsWelcome) {
  const auto quantized = test::open_twin("tiny-tied", Scheme::q8_0);
  const auto saved = SavedLogits::open(path_, LogitsIdentity::of(quantized, tokens_, 16, 8, 2));
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_EQ(saved->scheme(), "bf16");
}

TEST_F(SavedLogitsFile, RefusesOtherRuns) {
  const auto why = [&](const LogitsIdentity& expected) {
    const auto opened = SavedLogits::open(path_, expected);
    return opened ? "" : opened.error().message;
  };
  EXPECT_THAT(
      why(LogitsIdentity::of(test::open_twin("tiny-untied", Scheme::bf16), tokens_, 16, 8, 2)),
      HasSubstr("expected logits of the same checkpoint and revision (tiny-untied), found "
                "another (tiny-tied)"));
  const auto text = HasSubstr("expected logits of the same tokens, --context and --stride");
  const std::vector<Token> other = {5, 6, 8};
  EXPECT_THAT(why(LogitsIdentity::of(artifact_, other, 16, 8, 2)), text);
  EXPECT_THAT(why(LogitsIdentity::of(artifact_, tokens_, 15, 8, 2)), text);
  EXPECT_THAT(why(LogitsIdentity::of(artifact_, tokens_, 16, 9, 2)), text);
  EXPECT_THAT(why(LogitsIdentity::of(artifact_, tokens_, 16, 8, 3)),
              HasSubstr("expected 3 rows of logits, found 2"));
}

TEST_F(SavedLogitsFile, RefusesOtherFiles) {
  using Bytes = std::vector<std::byte>;
  EXPECT_EQ(refusal([](Bytes&) {}), "");
  EXPECT_THAT(refusal([](Bytes& b) { b.resize(159); }),
              HasSubstr("expected saved logits, found 159 bytes"));
  EXPECT_THAT(refusal([](Bytes& b) { b[0] = std::byte{'K'}; }), HasSubstr("another kind of file"));
  EXPECT_THAT(refusal([](Bytes& b) { b[8] = std::byte{2}; }), HasSubstr("found version 2"));
  EXPECT_THAT(refusal([](Bytes& b) { b[12] = std::byte{0}; }),
              HasSubstr("expected rows of 151936 logits, found 151808"));
  EXPECT_THAT(refusal([](Bytes& b) { b.pop_back(); }),
              HasSubstr("expected 1215648 bytes, found 1215647"));
  EXPECT_THAT(refusal([](Bytes& b) { b.push_back({}); }),
              HasSubstr("expected 1215648 bytes, found 1215649"));
}

TEST_F(SavedLogitsFile, IsNotThereUntilItIsWhole) {
  const std::string path = (test::scratch_dir() / "half.logits").string();
  {
    auto writer = LogitsWriter::create(path, identity_);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->write(rows_[0]));
    const auto early = writer->commit();
    ASSERT_FALSE(early);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

}  // namespace
}  // namespace kipp
