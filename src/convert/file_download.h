// One file of a download: NAME.partial, resumed by byte range, verified, renamed. Every answer of a
// server that does not fit what is pinned costs the partial file, never the truth of the final one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/types.h"
#include "convert/http.h"
#include "convert/hub.h"
#include "convert/sha256.h"

namespace kipp {

class FileDownload : private BodySink {
 public:
  // moved: called with the bytes this file has so far; it can fall when the file starts anew.
  FileDownload(const HubFile& file, const DownloadPlan& plan, const DownloadOptions& options,
               std::function<void(std::uint64_t have)> moved);
  ~FileDownload() override;
  FileDownload(const FileDownload&) = delete;
  FileDownload& operator=(const FileDownload&) = delete;

  // Opens the partial file and hashes what it holds. What can not be verified later is dropped.
  Result<void> open(const HashProgress& hashed);
  std::uint64_t have() const { return size_; }
  // Downloads the rest. Returns the SHA-256 of the file, which then has its final name.
  Result<std::string> run(HttpClient& client);

 private:
  enum class Next : std::uint8_t { verify, again, wait };

  bool begin(const HttpHead& head) override;
  bool write(std::span<const std::byte> bytes) override;

  // One request, and what its answer means.
  Result<Next> ask(HttpClient& client);
  Result<Next> judge(const HttpReply& reply);
  Result<Next> judge_status(const HttpHead& head);
  Result<void> after_mismatch();          // drops everything; an error the second time
  Result<void> after_failure(Next next);  // an error when it has been tried often enough
  Result<void> wait_before_retry();
  Result<void> put_in_place();
  bool accepts_range(const HttpHead& head);
  void restart();
  tl::unexpected<Error> interrupted() const;
  void note(const std::string& line) const;

  const HubFile& file_;
  const DownloadPlan& plan_;
  const DownloadOptions& options_;
  std::function<void(std::uint64_t)> moved_;
  std::filesystem::path final_;
  std::filesystem::path partial_;

  int fd_ = -1;
  std::uint64_t size_ = 0;  // bytes in the partial file, all of them in hash_
  Sha256 hash_;

  bool ranges_ = true;  // false: this server's ranges can not be trusted
  int wrong_ = 0;       // how often what the server sent was not the pinned file
  int failures_ = 0;    // since the last real progress
  std::uint64_t reached_ = 0;
  std::uint64_t seed_ = 0;  // of the jitter, which must differ between clients of one server
  std::uint64_t draws_ = 0;
  // The running answer: its head, and what was wrong with it.
  HttpHead head_;
  std::string mismatch_;   // not the pinned file
  std::string bad_range_;  // not the range that was asked for
  std::string io_error_;
  std::string problem_;  // the last failure, in words
};

}  // namespace kipp
