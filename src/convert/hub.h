// Downloads a repository's pinned files from the Hugging Face hub or a mirror of it. What arrives
// is written to NAME.partial and gets its name only when size and SHA-256 are the pinned ones; a
// broken download is resumed where it stopped, by this call or a later one. Nothing wrong is ever
// kept under a final name.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace kipp {

struct HubFile {
  std::string name;         // a plain file name
  std::uint64_t bytes = 0;  // 0: not pinned
  std::string sha256;  // empty: not pinned; such a file is accepted as it arrives, and said to be
                       // unverified
};

struct DownloadPlan {
  std::string endpoint;  // "https://huggingface.co"
  std::string token;  // bearer token; empty: none. Never sent to another origin than the endpoint's
  std::string ca_file;  // certificates to trust instead of the system's; empty: the system's
  std::string repository;
  std::string revision;
  std::filesystem::path directory;  // made when missing
  std::vector<HubFile> files;
};

// Tests shrink the times; the defaults are for people.
struct DownloadOptions {
  // Tries without progress_bytes of progress between them before giving up.
  int attempts = 6;
  std::uint64_t progress_bytes = 1 << 20;
  // The n-th wait is first_wait * 2^n, at most longest_wait, times a random factor of 0.5 to 1.
  std::chrono::milliseconds first_wait{1000};
  std::chrono::milliseconds longest_wait{30000};
  std::chrono::milliseconds longest_retry_after{120000};  // bounds what a server may ask for
  std::chrono::milliseconds connect_timeout{20000};
  std::chrono::milliseconds stall_timeout{30000};
  const std::atomic<bool>* cancel = nullptr;
  // label: "checking" or "downloading"; bytes of this call's work in that stage.
  std::function<void(std::string_view label, std::uint64_t done, std::uint64_t total)> progress;
  // One line about something a person may want to know: a retry, a file that was wrong.
  std::function<void(const std::string& line)> note;
};

struct HubFileReport {
  std::string name;
  std::uint64_t bytes = 0;
  std::string sha256;     // what the file has
  bool verified = false;  // sha256 is the pinned one; false: none is pinned
  bool present = false;   // was there already
};

// All files, in the plan's order, or the first error; what is whole by then stays, and so do
// partial files. A file that is already there is hashed once; a note of it (".verified" in the
// directory) lets later calls skip that while size, inode and times stay what they were. A wrong
// one is moved to NAME.wrong. One call at a time may work on a directory.
Result<std::vector<HubFileReport>> download(const DownloadPlan& plan,
                                            const DownloadOptions& options);

}  // namespace kipp
