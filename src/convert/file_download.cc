#include "convert/file_download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/rng.h"

namespace kipp {
namespace {

using std::chrono::milliseconds;

// A file that is wrong twice will be wrong a third time.
constexpr int kMaxWrong = 2;

}  // namespace

FileDownload::FileDownload(const HubFile& file, const DownloadPlan& plan,
                           const DownloadOptions& options,
                           std::function<void(std::uint64_t have)> moved)
    : file_(file),
      plan_(plan),
      options_(options),
      moved_(std::move(moved)),
      final_(plan.directory / file.name),
      partial_(plan.directory / (file.name + ".partial")),
      seed_(
          static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())) {
}

FileDownload::~FileDownload() {
  if (fd_ < 0) return;
  if (size_ == 0) ::unlink(partial_.c_str());
  ::close(fd_);
}

void FileDownload::note(const std::string& line) const {
  if (options_.note) options_.note(fmt::format("{}: {}", file_.name, line));
}

tl::unexpected<Error> FileDownload::interrupted() const {
  return fail(ErrorCode::interrupted,
              "interrupted; {} keeps what arrived and the same command resumes there",
              partial_.string());
}

Result<void> FileDownload::open(const HashProgress& hashed) {
  fd_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  struct stat info {};
  if (fd_ < 0 || ::fstat(fd_, &info) != 0) {
    return fail(ErrorCode::io, "{}: cannot open: {}", partial_.string(), std::strerror(errno));
  }
  const auto there = static_cast<std::uint64_t>(info.st_size);
  // Without a pinned hash two halves of different files would go unnoticed.
  if (file_.sha256.empty() || (file_.bytes != 0 && there > file_.bytes)) {
    if (::ftruncate(fd_, 0) != 0) {
      return fail(ErrorCode::io, "{}: cannot empty: {}", partial_.string(), std::strerror(errno));
    }
    return {};
  }
  std::vector<std::byte> buffer(1u << 20);
  while (size_ < there) {
    if (options_.cancel != nullptr && options_.cancel->load()) return interrupted();
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return fail(ErrorCode::io, "{}: cannot read: {}", partial_.string(),
                  n < 0 ? std::strerror(errno) : "it shrank");
    }
    hash_.update({buffer.data(), static_cast<std::size_t>(n)});
    size_ += static_cast<std::uint64_t>(n);
    if (hashed) hashed(static_cast<std::uint64_t>(n));
  }
  return {};
}

void FileDownload::restart() {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) {
    io_error_ = fmt::format("{}: cannot empty: {}", partial_.string(), std::strerror(errno));
  }
  size_ = 0;
  hash_.restart();
  moved_(0);
}

bool FileDownload::accepts_range(const HttpHead& head) {
  const auto& range = head.content_range;
  if (size_ == 0) {
    bad_range_ = "a range that was not asked for";
  } else if (!range) {
    bad_range_ = "no Content-Range that can be read";
  } else if (range->first != size_) {
    bad_range_ = fmt::format("a range from byte {}, not from {}", range->first, size_);
  } else if (range->total && file_.bytes != 0 && *range->total != file_.bytes) {
    mismatch_ =
        fmt::format("size: expected {} bytes, found {} announced", file_.bytes, *range->total);
  } else if (const std::uint64_t total = range->total.value_or(file_.bytes);
             total != 0 && range->last + 1 != total) {
    bad_range_ = fmt::format("a range up to byte {} of {}", range->last, total);
  } else if (head.content_length && *head.content_length != range->last - range->first + 1) {
    bad_range_ = "a range that differs from Content-Length";
  }
  return bad_range_.empty() && mismatch_.empty();
}

bool FileDownload::begin(const HttpHead& head) {
  if (head.status == 206) return accepts_range(head);
  if (head.status != 200) return false;
  if (head.content_length && file_.bytes != 0 && *head.content_length != file_.bytes) {
    mismatch_ = fmt::format("size: expected {} bytes, found {} announced", file_.bytes,
                            *head.content_length);
    return false;
  }
  // Then a cut connection would look like the end.
  if (!head.content_length && !head.self_delimiting && file_.bytes == 0) {
    mismatch_ = "size: expected the server to announce it, found nothing";
    return false;
  }
  if (size_ > 0) restart();  // the server sends everything, asked or not
  return io_error_.empty();
}

bool FileDownload::write(std::span<const std::byte> bytes) {
  if (file_.bytes != 0 && bytes.size() > file_.bytes - size_) {
    mismatch_ = fmt::format("size: expected {} bytes, found more", file_.bytes);
    return false;
  }
  hash_.update(bytes);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      io_error_ = fmt::format("{}: cannot write: {}", partial_.string(), std::strerror(errno));
      return false;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    size_ += static_cast<std::uint64_t>(n);
  }
  moved_(size_);
  return true;
}

Result<FileDownload::Next> FileDownload::judge_status(const HttpHead& head) {
  const std::string where =
      fmt::format("{} at revision {} of {}", plan_.repository, plan_.revision, plan_.endpoint);
  switch (head.status) {
    case 200:
    case 206:  // accepted by begin(), else it said why not
      if (file_.bytes == 0 || size_ == file_.bytes) return Next::verify;
      problem_ = fmt::format("the body ended after {} of {} bytes", size_, file_.bytes);
      return Next::wait;
    case 401:
      return fail(ErrorCode::network,
                  "{}: {} wants a valid token (status 401): set HF_TOKEN to one of your account, "
                  "or unset it "
                  "if it is old",
                  file_.name, plan_.endpoint);
    case 403:
      return fail(ErrorCode::network,
                  "{}: access is refused (status 403): open the page of {} with the account of "
                  "HF_TOKEN and "
                  "ask for access there",
                  file_.name, plan_.repository);
    case 404:
    case 410:
      return fail(ErrorCode::network,
                  "{}: not found (status {}) in {}: if HF_ENDPOINT names a mirror, it may lack "
                  "this revision",
                  file_.name, head.status, where);
    case 416:
      bad_range_ = "status 416";
      return Next::again;
    case 408:
    case 429:
      problem_ = fmt::format("status {}", head.status);
      return Next::wait;
    default:
      if (head.status >= 500) {
        problem_ = fmt::format("status {}", head.status);
        return Next::wait;
      }
      return fail(ErrorCode::network, "{}: expected status 200 or 206 from {}, found {}",
                  file_.name, plan_.endpoint, head.status);
  }
}

// What the answer means: verify what is there, ask again at once, or after a while.
Result<FileDownload::Next> FileDownload::judge(const HttpReply& reply) {
  if (!io_error_.empty()) return fail(ErrorCode::io, "{}", io_error_);
  if (reply.end == HttpEnd::interrupted) return interrupted();
  if (reply.end == HttpEnd::impossible) {
    return fail(ErrorCode::network, "{}: {}: {}", file_.name, plan_.endpoint, reply.problem);
  }
  if (reply.end == HttpEnd::lost) {
    problem_ = reply.problem;
    return Next::wait;
  }
  if (!mismatch_.empty()) return Next::again;
  if (!bad_range_.empty()) return Next::again;
  return judge_status(reply.head);
}

Result<void> FileDownload::wait_before_retry() {
  const int doublings = std::min(failures_ - 1, 20);
  const auto longest = std::min(options_.first_wait * (1 << doublings), options_.longest_wait);
  const double jitter = 0.5 + 0.5 * draw_uniform(seed_, draws_++);
  auto wait = milliseconds(static_cast<long long>(static_cast<double>(longest.count()) * jitter));
  if (head_.retry_after) {
    wait = std::min<milliseconds>(std::max<milliseconds>(*head_.retry_after, wait),
                                  options_.longest_retry_after);
  }
  note(fmt::format("{}; trying again in {:.1f} s from byte {}", problem_,
                   static_cast<double>(wait.count()) / 1000, size_));
  const auto until = std::chrono::steady_clock::now() + wait;
  while (std::chrono::steady_clock::now() < until) {
    if (options_.cancel != nullptr && options_.cancel->load()) return interrupted();
    std::this_thread::sleep_for(std::min(wait, milliseconds(20)));
  }
  return {};
}

Result<void> FileDownload::put_in_place() {
  if (::fsync(fd_) != 0) {
    return fail(ErrorCode::io, "{}: cannot sync: {}", partial_.string(), std::strerror(errno));
  }
  std::error_code error;
  std::filesystem::rename(partial_, final_, error);
  if (error) {
    return fail(ErrorCode::io, "{}: cannot rename to {}: {}", partial_.string(), final_.string(),
                error.message());
  }
  return {};
}

Result<FileDownload::Next> FileDownload::ask(HttpClient& client) {
  mismatch_.clear();
  bad_range_.clear();
  head_ = {};
  if (file_.bytes != 0 && size_ == file_.bytes) return Next::verify;
  if (size_ > 0 && (!ranges_ || file_.sha256.empty())) restart();
  const HttpQuery request{.url = fmt::format("{}/{}/resolve/{}/{}", plan_.endpoint,
                                             plan_.repository, plan_.revision, file_.name),
                          .offset = size_,
                          .ca_file = plan_.ca_file,
                          .token = plan_.token,
                          .connect_timeout = options_.connect_timeout,
                          .stall_timeout = options_.stall_timeout,
                          .cancel = options_.cancel};
  const HttpReply reply = client.get(request, *this);
  head_ = reply.head;
  return judge(reply);
}

Result<void> FileDownload::after_mismatch() {
  restart();
  if (++wrong_ == kMaxWrong) {
    return fail(ErrorCode::refused, "{}: {}, {} times; nothing of it is kept", file_.name,
                mismatch_, kMaxWrong);
  }
  note(fmt::format("{}; downloading it anew", mismatch_));
  return {};
}

Result<void> FileDownload::after_failure(Next next) {
  if (size_ >= reached_ + options_.progress_bytes) {
    failures_ = 0;
    reached_ = size_;
  }
  if (!bad_range_.empty()) {
    problem_ = fmt::format("the server answered with {}", bad_range_);
    ranges_ = false;
    restart();
  }
  if (++failures_ >= options_.attempts) {
    return fail(ErrorCode::network,
                "{}: gave up after {} tries, the last one because {}; the same command resumes "
                "at byte {}",
                file_.name, failures_, problem_, size_);
  }
  if (next == Next::wait) return wait_before_retry();
  note(fmt::format("{}; downloading it anew", problem_));
  return {};
}

Result<std::string> FileDownload::run(HttpClient& client) {
  reached_ = size_;
  while (true) {
    KIPP_TRY_ASSIGN(next, ask(client));
    if (next == Next::verify) {
      KIPP_TRY_ASSIGN(sha256, hash_.finish());
      if (file_.sha256.empty() || sha256 == file_.sha256) {
        KIPP_TRY(put_in_place());
        return sha256;
      }
      mismatch_ = fmt::format("SHA-256: expected {}, found {}", file_.sha256, sha256);
    }
    if (!mismatch_.empty()) {
      KIPP_TRY(after_mismatch());
    } else {
      KIPP_TRY(after_failure(next));
    }
  }
}

}  // namespace kipp
