#include "convert/hub.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "convert/file_download.h"
#include "convert/verified_stamps.h"

namespace kipp {
namespace {

namespace fs = std::filesystem;

Result<void> check_plan(const DownloadPlan& plan) {
  if (!plan.endpoint.starts_with("https://") && !plan.endpoint.starts_with("http://")) {
    return fail(
        ErrorCode::invalid,
        "HF_ENDPOINT: expected an address that begins with https:// or http://, found \"{}\"",
        plan.endpoint);
  }
  const auto printable = [](char c) { return c > ' ' && c < '\x7f'; };
  if (!std::all_of(plan.token.begin(), plan.token.end(), printable)) {
    return fail(ErrorCode::invalid,
                "HF_TOKEN: expected printable ASCII without blanks, found other characters");
  }
  for (const HubFile& file : plan.files) {
    // ".", ".." and ".verified" too: no file of a hub repository that we want begins with a dot.
    if (file.name.empty() || file.name.front() == '.' || file.name.find('/') != std::string::npos) {
      return fail(ErrorCode::invalid, "file name: expected a plain one, found \"{}\"", file.name);
    }
  }
  return {};
}

// Two downloads into one directory would write the same partial files.
class DirectoryLock {
 public:
  static Result<DirectoryLock> take(const fs::path& directory) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) {
      return fail(ErrorCode::io, "{}: cannot make the directory: {}", directory.string(),
                  error.message());
    }
    const fs::path path = directory / ".lock";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
      return fail(ErrorCode::io, "{}: cannot open: {}", path.string(), std::strerror(errno));
    }
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      ::close(fd);
      return fail(ErrorCode::io, "{}: expected to work alone here, found another download at work",
                  directory.string());
    }
    return DirectoryLock(fd);
  }
  DirectoryLock(DirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  int fd_;
};

struct FileJob {
  const HubFile* file;
  fs::path path;
  std::optional<HubFileReport> done;
  std::unique_ptr<FileDownload> download;
  std::uint64_t size = 0;  // of the file that is already there
};

class Puller {
 public:
  Puller(const DownloadPlan& plan, const DownloadOptions& options)
      : plan_(plan), options_(options), stamps_(VerifiedStamps::read(plan.directory)) {}

  Result<std::vector<HubFileReport>> run() {
    KIPP_TRY(survey());
    KIPP_TRY(check_present());
    KIPP_TRY(open_partials());
    KIPP_TRY(check_room());
    KIPP_TRY(fetch_missing());
    std::vector<HubFileReport> reports;
    for (FileJob& job : jobs_) reports.push_back(*std::move(job.done));
    return reports;
  }

 private:
  HubFileReport report(const HubFile& file, std::uint64_t bytes, std::string sha256,
                       bool present) const {
    return {file.name, bytes, std::move(sha256), !file.sha256.empty(), present};
  }

  void progress(std::string_view label, std::uint64_t done, std::uint64_t total) const {
    if (options_.progress) options_.progress(label, done, total);
  }

  // What is there already, and how much of it must be read.
  Result<void> survey() {
    for (const HubFile& file : plan_.files) {
      FileJob& job = jobs_.emplace_back();
      job.file = &file;
      job.path = plan_.directory / file.name;
      std::error_code error;
      const auto status = fs::status(job.path, error);
      if (fs::is_regular_file(status)) {
        job.size = fs::file_size(job.path, error);
        if (const auto known = stamps_.find(job.path); known && matches(file, job.size, *known)) {
          job.done = report(file, job.size, *known, true);
        } else if (sized(file, job.size)) {
          to_hash_ += job.size;
        }
      } else if (fs::exists(status)) {
        return fail(ErrorCode::io, "{}: expected a file or nothing, found something else",
                    job.path.string());
      }
      if (const auto there = fs::file_size(job.path.string() + ".partial", error); !error) {
        to_hash_ += there;
      }
    }
    return {};
  }

  static bool sized(const HubFile& file, std::uint64_t size) {
    return file.bytes == 0 || file.bytes == size;
  }
  static bool matches(const HubFile& file, std::uint64_t size, const std::string& sha256) {
    return sized(file, size) && (file.sha256.empty() || file.sha256 == sha256);
  }

  Result<void> check_present() {
    for (FileJob& job : jobs_) {
      std::error_code error;
      if (job.done || !fs::exists(job.path, error)) continue;
      std::string sha256;
      if (sized(*job.file, job.size)) {
        KIPP_TRY_ASSIGN(hash, sha256_of_file(job.path, hashed(), options_.cancel));
        sha256 = hash;
      }
      if (matches(*job.file, job.size, sha256)) {
        job.done = report(*job.file, job.size, sha256, true);
        stamps_.add(job.path, sha256);
        continue;
      }
      const fs::path aside = job.path.string() + ".wrong";
      fs::rename(job.path, aside, error);
      if (error) {
        return fail(ErrorCode::io, "{}: cannot move it aside: {}", job.path.string(),
                    error.message());
      }
      if (options_.note) {
        options_.note(sha256.empty()
                          ? fmt::format("{}: size: expected {} bytes, found {}; moved to {}",
                                        job.file->name, job.file->bytes, job.size, aside.string())
                          : fmt::format("{}: SHA-256: expected {}, found {}; moved to {}",
                                        job.file->name, job.file->sha256, sha256, aside.string()));
      }
    }
    return {};
  }

  Result<void> open_partials() {
    for (FileJob& job : jobs_) {
      if (job.done) continue;
      job.download =
          std::make_unique<FileDownload>(*job.file, plan_, options_, [this](std::uint64_t have) {
            progress("downloading", fetched_ + have - std::min(have, had_), to_fetch_);
          });
      KIPP_TRY(job.download->open(hashed()));
      to_fetch_ += job.file->bytes - std::min(job.file->bytes, job.download->have());
    }
    return {};
  }

  Result<void> check_room() const {
    std::error_code error;
    const auto disk = fs::space(plan_.directory, error);
    if (error || disk.available >= to_fetch_) return {};
    return fail(
        ErrorCode::io,
        "{}: expected {:.2f} GB of free disk space for what is still to come, found {:.2f} GB; "
        "--dir chooses another place",
        plan_.directory.string(), static_cast<double>(to_fetch_) / 1e9,
        static_cast<double>(disk.available) / 1e9);
  }

  Result<void> fetch_missing() {
    // Small files first: a wrong token or address shows before gigabytes have come.
    std::vector<FileJob*> missing;
    for (FileJob& job : jobs_) {
      if (!job.done) missing.push_back(&job);
    }
    std::stable_sort(missing.begin(), missing.end(), [](const FileJob* a, const FileJob* b) {
      return a->file->bytes < b->file->bytes;
    });
    HttpClient client;
    for (FileJob* job : missing) {
      had_ = job->download->have();
      KIPP_TRY_ASSIGN(sha256, job->download->run(client));
      const std::uint64_t have = job->download->have();
      job->done = report(*job->file, have, sha256, false);
      job->download.reset();
      stamps_.add(job->path, sha256);
      fetched_ += have - std::min(have, had_);
      progress("downloading", fetched_, to_fetch_);
    }
    return {};
  }

  HashProgress hashed() {
    return [this](std::uint64_t bytes) {
      hashed_ += bytes;
      progress("checking", hashed_, to_hash_);
    };
  }

  const DownloadPlan& plan_;
  const DownloadOptions& options_;
  VerifiedStamps stamps_;
  std::vector<FileJob> jobs_;
  std::uint64_t hashed_ = 0;
  std::uint64_t to_hash_ = 0;
  std::uint64_t fetched_ = 0;  // of the files before the running one
  std::uint64_t had_ = 0;      // of the running one, before this call
  std::uint64_t to_fetch_ = 0;
};

}  // namespace

Result<std::vector<HubFileReport>> download(const DownloadPlan& plan,
                                            const DownloadOptions& options) {
  KIPP_TRY(check_plan(plan));
  KIPP_TRY_ASSIGN(lock, DirectoryLock::take(plan.directory));
  static_cast<void>(lock);
  return Puller(plan, options).run();
}

}  // namespace kipp
