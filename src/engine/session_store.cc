#include "engine/session_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/thread_name.h"

namespace kipp {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".kvblock";
constexpr std::string_view kPartial = ".partial";  // as OutputFile has it
// Blocks handed over and not written yet, and blocks of one prefix read ahead. With qwen3-0.6b in
// BF16 a block is 3.7 MB.
constexpr std::size_t kMostWrites = 4;
constexpr std::size_t kReadAhead = 4;

std::uint64_t hash_of(const SessionOrigin& origin) {
  const std::string all = fmt::format("{}\n{}\n{}\n{}\n{}", origin.checkpoint, origin.source,
                                      origin.scheme, origin.kv, origin.backend);
  return XXH3_64bits(all.data(), all.size());
}

BlockTokens tokens_of_block(std::span<const Token> tokens, std::size_t block) {
  return tokens.subspan(block * kBlockPositions).first<kBlockPositions>();
}

// Of whole blocks of tokens: the hash of each block and all before it.
std::vector<std::uint64_t> chain_of(std::span<const Token> tokens, CacheSalt salt) {
  std::vector<std::uint64_t> chain;
  std::uint64_t before = salt;
  for (std::size_t block = 0; block < tokens.size() / kBlockPositions; ++block) {
    before = prefix_hash(before, tokens_of_block(tokens, block));
    chain.push_back(before);
  }
  return chain;
}

std::optional<std::uint64_t> parse_hash(std::string_view text) {
  if (text.size() != 16) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value << 4 | digit;
  }
  return value;
}

// One block with all tokens up to its end.
bool is_one_block(const SessionFileHeader& header) {
  return header.blocks == 1 && header.logits == 0 &&
         header.tokens == (header.first_block + 1) * std::uint32_t{kBlockPositions};
}

Result<int> lock_directory(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    return fail(ErrorCode::io, "{}: cannot make the directory: {}", directory, error.message());
  }
  const std::string path = directory + "/lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return fail(ErrorCode::io, "{}: cannot create: {}", path, std::strerror(errno));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    ::close(fd);
    if (reason == EWOULDBLOCK) {
      return fail(ErrorCode::invalid,
                  "{}: expected a directory that no other server uses, found it in use", directory);
    }
    return fail(ErrorCode::io, "{}: cannot lock: {}", path, std::strerror(reason));
  }
  return fd;
}

// A file of the store's own, found when it is opened.
struct Found {
  std::uint64_t chain = 0;
  std::uint64_t before = 0;
  std::int64_t used = 0;  // nanoseconds; when it was used last
  std::uint32_t index = 0;
  std::uint64_t bytes = 0;
  PlaneBits planes = 0;
  bool usable = false;
};

Found look_at(const std::string& path, std::uint64_t chain, const SessionOrigin& origin) {
  Found found{.chain = chain};
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return found;
  found.bytes = static_cast<std::uint64_t>(info.st_size);
  found.used = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
  const auto header = read_session_header(path);
  if (!header || !check_origin(path, *header, origin) || !is_one_block(*header) ||
      header->file_bytes != found.bytes) {
    return found;
  }
  found.before = header->before;
  found.index = header->first_block;
  found.planes = static_cast<PlaneBits>(header->planes);
  found.usable = true;
  return found;
}

// In the order of last use, of a prefix the last blocks first: a block is used whenever one that
// continues it is, which the times of the files need not say after a crash.
void sort_by_use(std::vector<Found>& files) {
  std::unordered_map<std::uint64_t, Found*> by_chain;
  std::ranges::sort(files, std::greater(), &Found::index);
  for (Found& file : files) by_chain[file.chain] = &file;
  for (const Found& file : files) {
    if (!file.usable || file.index == 0) continue;
    const auto before = by_chain.find(file.before);
    if (before == by_chain.end() || before->second->index + 1 != file.index) continue;
    before->second->used = std::max(before->second->used, file.used);
  }
  std::ranges::stable_sort(files, [](const Found& a, const Found& b) {
    return std::pair(a.usable, a.used) < std::pair(b.usable, b.used);
  });
}

}  // namespace

StoredPrefix::State StoredPrefix::state() const {
  const std::lock_guard lock(store_.mutex_);
  if (!loaded_.empty()) return State::ready;
  return failed_ ? State::failed : State::loading;
}

const SessionFile& StoredPrefix::front() const {
  const std::lock_guard lock(store_.mutex_);
  return loaded_.front();  // stays where it is while others are appended
}

void StoredPrefix::pop() {
  const std::lock_guard lock(store_.mutex_);
  loaded_.pop_front();
  store_.queue(*this);
}

void StoredPrefix::reject() {
  const std::lock_guard lock(store_.mutex_);
  const std::size_t block = static_cast<std::size_t>(next_) - loaded_.size();
  store_.spoil(chain_[static_cast<std::size_t>(first_) + block]);
  loaded_.clear();
  failed_ = true;
}

Result<std::unique_ptr<SessionStore>> SessionStore::open(const SessionOrigin& origin,
                                                         SessionStoreOptions options) {
  KIPP_TRY_ASSIGN(lock, lock_directory(options.directory));
  std::unique_ptr<SessionStore> store(new SessionStore(origin, std::move(options), lock));
  KIPP_TRY(store->scan());
  store->thread_ = std::thread([raw = store.get()] { raw->run(); });
  return store;
}

SessionStore::SessionStore(const SessionOrigin& origin, SessionStoreOptions options, int lock)
    : origin_(origin),
      options_(std::move(options)),
      lock_(lock),
      prefix_(fmt::format("{:016x}-", hash_of(origin))) {
  counters_.budget = options_.budget;
}

SessionStore::~SessionStore() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    thread_.join();
    keep_order();
  }
  ::close(lock_);
}

Result<void> SessionStore::scan() {
  std::vector<Found> own;
  std::size_t others = 0;
  std::error_code error;
  for (fs::directory_iterator at(options_.directory, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name == "lock") continue;
    std::string_view middle = name;
    const bool ours = middle.starts_with(prefix_);
    if (ours) middle.remove_prefix(prefix_.size());
    if (ours && middle.ends_with(kPartial)) {
      log(fmt::format("{}: removed, its writing was interrupted", name));
      std::error_code ignored;
      fs::remove(at->path(), ignored);
      continue;
    }
    const auto chain = ours && middle.ends_with(kEnding)
                           ? parse_hash(middle.substr(0, middle.size() - kEnding.size()))
                           : std::nullopt;
    if (!chain) {
      ++others;
      continue;
    }
    own.push_back(look_at(at->path().string(), *chain, origin_));
    if (own.back().usable) continue;
    ++counters_.refused;
    log(fmt::format("{}: ignored, it is damaged or not what its name says", name));
  }
  if (error) {
    return fail(ErrorCode::io, "{}: cannot list the directory: {}", options_.directory,
                error.message());
  }
  if (others > 0) {
    log(fmt::format("{}: {} files of other models or programs are left alone", options_.directory,
                    others));
  }
  sort_by_use(own);
  for (const Found& file : own) {
    put(file.chain,
        {.bytes = file.bytes, .tick = next_tick_++, .planes = file.planes, .usable = file.usable});
  }
  first_tick_ = next_tick_;
  make_room(0);
  return {};
}

void SessionStore::on_progress(std::function<void()> wake) {
  const std::lock_guard lock(wake_mutex_);
  wake_ = std::move(wake);
}

std::shared_ptr<StoredPrefix> SessionStore::find(std::span<const Token> prompt, CacheSalt salt,
                                                 int first, const Usable& usable) {
  if (prompt.empty()) return nullptr;
  const std::size_t blocks = (prompt.size() - 1) / kBlockPositions;
  const auto begin = static_cast<std::size_t>(first);
  if (blocks <= begin) return nullptr;
  std::shared_ptr<StoredPrefix> prefix(new StoredPrefix(*this));
  prefix->first_ = first;
  prefix->salt_ = salt;
  prefix->chain_ = chain_of(prompt.first(blocks * kBlockPositions), salt);
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t block = begin; block < blocks; ++block) {
      const auto at = entries_.find(prefix->chain_[block]);
      if (at == entries_.end() || !at->second.usable) break;
      prefix->planes_.push_back(at->second.planes);
    }
  }
  auto& planes = prefix->planes_;
  const auto all_usable = [&](int end) {
    for (int i = first; i < end; ++i) {
      if (!usable(end, i, planes[static_cast<std::size_t>(i - first)])) return false;
    }
    return true;
  };
  while (!planes.empty() && !all_usable(prefix->end())) planes.pop_back();
  if (planes.empty()) return nullptr;
  const auto end = static_cast<std::size_t>(prefix->end());
  prefix->chain_.resize(end);
  const auto tokens = prompt.first(end * kBlockPositions);
  prefix->tokens_.assign(tokens.begin(), tokens.end());
  const std::lock_guard lock(mutex_);
  touch(prefix->chain_);
  queue(*prefix);
  return prefix;
}

bool SessionStore::wants(std::uint64_t chain, PlaneBits planes) const {
  const std::lock_guard lock(mutex_);
  const auto has = [planes](PlaneBits stored) { return (planes & ~stored) == 0; };
  for (const Write& job : writes_) {
    if (job.chain.back() == chain && has(job.planes)) return false;
  }
  const auto at = entries_.find(chain);
  return at == entries_.end() || !at->second.usable || !has(at->second.planes);
}

bool SessionStore::has_room() const {
  const std::lock_guard lock(mutex_);
  return writes_.size() < kMostWrites;
}

void SessionStore::wait_for_room() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return writes_.size() < kMostWrites; });
}

void SessionStore::save(std::vector<Token> tokens, CacheSalt salt, PlaneBits planes,
                        std::vector<std::byte> bytes) {
  Write job{.tokens = std::move(tokens),
            .chain = {},
            .salt = salt,
            .planes = planes,
            .bytes = std::move(bytes)};
  job.chain = chain_of(job.tokens, salt);
  {
    const std::lock_guard lock(mutex_);
    writes_.push_back(std::move(job));
  }
  work_.notify_one();
}

void SessionStore::flush() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return writes_.empty(); });
}

SessionStoreStats SessionStore::stats() const {
  const std::lock_guard lock(mutex_);
  SessionStoreStats stats = counters_;
  stats.bytes = bytes_;
  stats.blocks = entries_.size();
  stats.restored = n_restored_.load();
  return stats;
}

void SessionStore::run() {
  name_this_thread("kipp-store");
  std::unique_lock lock(mutex_);
  while (true) {
    // Somebody waits for what is read, nobody for what is written.
    if (const auto prefix = next_load()) {
      load(*prefix, lock);
    } else if (!writes_.empty()) {
      write(writes_.front(), lock);
      writes_.pop_front();
      done_.notify_all();
    } else if (stop_) {
      return;
    } else {
      work_.wait(lock);
      continue;
    }
    lock.unlock();
    {
      const std::lock_guard calling(wake_mutex_);
      if (wake_) wake_();
    }
    lock.lock();
  }
}

std::shared_ptr<StoredPrefix> SessionStore::next_load() {
  while (!loads_.empty() && !stop_) {
    const auto prefix = loads_.front().lock();
    const bool more = prefix && !prefix->failed_ && prefix->first_ + prefix->next_ < prefix->end();
    if (more && prefix->loaded_.size() < kReadAhead) return prefix;
    loads_.pop_front();  // pop() queues it again
  }
  return nullptr;
}

void SessionStore::load(StoredPrefix& prefix, std::unique_lock<std::mutex>& lock) {
  const int block = prefix.first_ + prefix.next_;
  lock.unlock();
  auto file = read(prefix, block);
  lock.lock();
  if (file) {
    ++prefix.next_;
    prefix.loaded_.push_back(*std::move(file));
    return;
  }
  prefix.failed_ = true;
  log(fmt::format("not used: {}", file.error().message));
  spoil(prefix.chain_[static_cast<std::size_t>(block)]);
}

// Its tokens decide, not the hash in its name.
Result<SessionFile> SessionStore::read(const StoredPrefix& prefix, int block) const {
  const std::string path = path_of(prefix.chain_[static_cast<std::size_t>(block)]);
  KIPP_TRY_ASSIGN(file, SessionFile::open(path, origin_));
  const auto n = static_cast<std::size_t>(block + 1) * kBlockPositions;
  if (!is_one_block(file.header()) || file.header().salt != prefix.salt_ ||
      file.header().planes != prefix.planes_[static_cast<std::size_t>(block - prefix.first_)] ||
      !std::ranges::equal(file.tokens(), std::span(prefix.tokens_).first(n))) {
    return fail(ErrorCode::refused,
                "{}: expected block {} of the prefix that its name stands for, found another", path,
                block);
  }
  return std::move(file);
}

void SessionStore::queue(StoredPrefix& prefix) {
  loads_.push_back(prefix.weak_from_this());
  work_.notify_one();
}

void SessionStore::write(const Write& job, std::unique_lock<std::mutex>& lock) {
  const std::uint64_t chain = job.chain.back();
  const BlockPart part{.bytes = job.bytes.size(), .planes = job.planes};
  const std::size_t n = job.chain.size();
  const SessionContents contents{.tokens = job.tokens,
                                 .logits = {},
                                 .blocks = std::span(&part, 1),
                                 .first_block = static_cast<int>(n) - 1,
                                 .salt = job.salt,
                                 .before = n > 1 ? job.chain[n - 2] : job.salt};
  const std::uint64_t bytes = session_file_bytes(contents);
  if (bytes > options_.budget) return;
  erase(chain);
  make_room(bytes);
  lock.unlock();
  const auto written = write_session_file(path_of(chain), origin_, contents,
                                          [&](int, std::span<std::byte> out) -> Result<void> {
                                            std::ranges::copy(job.bytes, out.begin());
                                            return {};
                                          });
  lock.lock();
  if (!written) {
    ::unlink(path_of(chain).c_str());  // what it was to replace is not counted any more
    ++counters_.failed;
    // One line, or a full disk would write a log of its own.
    if (counters_.failed == 1) log(fmt::format("not saved: {}", written.error().message));
    return;
  }
  ++counters_.saved;
  put(chain, {.bytes = bytes, .tick = next_tick_++, .planes = job.planes});
  touch(job.chain);
}

// What is used with the last block is used too, and after it goes.
void SessionStore::touch(std::span<const std::uint64_t> chain) {
  for (std::size_t i = chain.size(); i-- > 0;) {
    const auto at = entries_.find(chain[i]);
    if (at == entries_.end()) continue;
    by_use_.erase({at->second.tick, chain[i]});
    at->second.tick = next_tick_++;
    by_use_.emplace(at->second.tick, chain[i]);
  }
}

void SessionStore::put(std::uint64_t chain, const Entry& entry) {
  entries_.insert_or_assign(chain, entry);
  by_use_.emplace(entry.tick, chain);
  bytes_ += entry.bytes;
}

void SessionStore::erase(std::uint64_t chain) {
  const auto at = entries_.find(chain);
  if (at == entries_.end()) return;
  by_use_.erase({at->second.tick, chain});
  bytes_ -= at->second.bytes;
  entries_.erase(at);
}

// Not found any more, and the first to go.
void SessionStore::spoil(std::uint64_t chain) {
  const auto at = entries_.find(chain);
  if (at == entries_.end() || !at->second.usable) return;
  ++counters_.refused;
  by_use_.erase({at->second.tick, chain});
  at->second.usable = false;
  at->second.tick = 0;
  by_use_.emplace(0, chain);
}

void SessionStore::make_room(std::uint64_t bytes) {
  while (bytes_ + bytes > options_.budget && !by_use_.empty()) {
    const std::uint64_t chain = by_use_.begin()->second;
    ::unlink(path_of(chain).c_str());
    erase(chain);
    ++counters_.evicted;
  }
}

// Times of files are all that a later store knows of their use.
void SessionStore::keep_order() const {
  std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  now -= static_cast<std::int64_t>(by_use_.size());
  for (const auto& [tick, chain] : by_use_) {
    ++now;
    if (tick < first_tick_) continue;
    const timespec time{.tv_sec = now / 1'000'000'000, .tv_nsec = now % 1'000'000'000};
    const timespec times[2] = {time, time};
    ::utimensat(AT_FDCWD, path_of(chain).c_str(), times, 0);
  }
}

std::string SessionStore::path_of(std::uint64_t chain) const {
  return fmt::format("{}/{}{:016x}{}", options_.directory, prefix_, chain, kEnding);
}

void SessionStore::log(std::string_view text) const {
  if (options_.log) options_.log(text);
}

}  // namespace kipp
