// The vectors of FIPS 180-4, however the bytes arrive.
#include "convert/sha256.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kipp {
namespace {

std::string sha256(std::string_view text, std::size_t piece) {
  Sha256 hash;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    hash.update(std::as_bytes(std::span(text.substr(at, piece))));
  }
  return hash.finish().value();
}

constexpr auto kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr auto kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr auto kMillion = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(Sha256, KnownVectorsInPiecesOfAnySize) {
  EXPECT_EQ(sha256("", 1), kEmpty);
  for (const std::size_t piece : {1u, 2u, 3u}) EXPECT_EQ(sha256("abc", piece), kAbc);
  const std::string million(1'000'000, 'a');
  for (const std::size_t piece : {63u, 64u, 65u, 1'000'000u}) {
    EXPECT_EQ(sha256(million, piece), kMillion);
  }
}

TEST(Sha256, BeginsAnewAfterFinishAndRestart) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span("noise", 5)));
  hash.restart();
  hash.update(std::as_bytes(std::span("abc", 3)));
  EXPECT_EQ(hash.finish().value(), kAbc);
  EXPECT_EQ(hash.finish().value(), kEmpty);
}

TEST(Sha256, Files) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "kipp_sha256_test";
  std::ofstream(path) << std::string(1'000'000, 'a');
  std::uint64_t seen = 0;
  const auto count = [&](std::uint64_t bytes) { seen += bytes; };
  EXPECT_EQ(sha256_of_file(path, count, nullptr).value(), kMillion);
  EXPECT_EQ(seen, 1'000'000u);
  const std::atomic<bool> cancel{true};
  EXPECT_EQ(sha256_of_file(path, {}, &cancel).error().code, ErrorCode::interrupted);
  std::filesystem::remove(path);
  EXPECT_EQ(sha256_of_file(path, {}, nullptr).error().code, ErrorCode::io);
  EXPECT_EQ(sha256_of_file(::testing::TempDir(), {}, nullptr).error().code, ErrorCode::io);
}

}  // namespace
}  // namespace kipp
