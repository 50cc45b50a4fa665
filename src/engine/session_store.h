// Durable prefixes: published blocks as files of one directory, so that prompts need not be
// evaluated again after a restart or when memory has forgotten them. A hit computes the bits that a
// miss would: a file is used only when it is whole, of this very model, and all tokens up to its
// block's end are those of the prompt (engine/session_file.h).
//
//     DIR/ORIGIN-CHAIN.kvblock     one block, and the tokens up to its end
//     DIR/lock                     held while a store is open: one server to a directory
//
// ORIGIN is a hash of whose keys and values they are, so that several models may have their blocks
// in one directory in turns; a budget counts those of one. CHAIN is the hash of the block and all
// before it, with their salt. Over the budget the files that were used least recently go, of a
// prefix the last ones first. Whatever else is in the directory is left alone; own files that are
// damaged are not used, and go first.
//
// The engine's thread asks and hands over, a thread of the store's reads and writes. Errors are
// counted and logged; all they lead to is a prompt that is evaluated.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/types.h"
#include "engine/session_file.h"
#include "kv/prefix_index.h"

namespace kipp {

struct SessionStoreOptions {
  std::string directory;     // made if it is not there
  std::uint64_t budget = 0;  // bytes
  std::function<void(std::string_view)> log = {};
};

struct SessionStoreStats {
  std::uint64_t budget = 0;  // bytes; 0: no store
  std::uint64_t bytes = 0;   // of the files
  std::uint64_t blocks = 0;
  // Since the start; blocks.
  std::uint64_t saved = 0;
  std::uint64_t restored = 0;
  std::uint64_t evicted = 0;  // over the budget
  std::uint64_t refused = 0;  // damaged, or not what their names say
  std::uint64_t failed = 0;   // could not be written
};

class SessionStore;

// The stored blocks of one prompt on their way into memory: read ahead by the store's thread, taken
// by the engine's. The store outlives it.
class StoredPrefix : public std::enable_shared_from_this<StoredPrefix> {
 public:
  int first() const { return first_; }  // blocks [first, end) of the prompt
  int end() const { return first_ + static_cast<int>(planes_.size()); }

  enum class State : std::uint8_t { loading, ready, failed };
  State state() const;
  // Of a ready one, the next block; pop() makes room for another to be read.
  const SessionFile& front() const;
  void pop();
  // The next block was of no use after all; nobody is to find it again.
  void reject();

 private:
  friend class SessionStore;
  explicit StoredPrefix(SessionStore& store) : store_(store) {}

  SessionStore& store_;
  int first_ = 0;
  CacheSalt salt_ = 0;
  std::vector<Token> tokens_;         // of all blocks before end()
  std::vector<std::uint64_t> chain_;  // of each of them
  std::vector<PlaneBits> planes_;     // of blocks from first() on
  // Guarded by the store's mutex.
  std::deque<SessionFile> loaded_;
  int next_ = 0;  // to be read
  bool failed_ = false;
};

class SessionStore {
 public:
  // Looks through the directory. Refuses one that another store has open.
  static Result<std::unique_ptr<SessionStore>> open(const SessionOrigin& origin,
                                                    SessionStoreOptions options);
  ~SessionStore();  // writes what it was handed
  SessionStore(const SessionStore&) = delete;
  SessionStore& operator=(const SessionStore&) = delete;

  // Called by the store's thread when it has something for the engine's, or room for more; not any
  // more once another is set.
  void on_progress(std::function<void()> wake);

  // What is stored of `prompt` from block `first` on, short of its last token; its loading begins.
  // It is the longest prefix of which usable(end, i, planes) holds for every block i: that with
  // these planes it can be used by a prompt whose blocks before `end` are there. Nothing when
  // nothing is.
  using Usable = std::function<bool(int end, int i, PlaneBits planes)>;
  std::shared_ptr<StoredPrefix> find(std::span<const Token> prompt, CacheSalt salt, int first,
                                     const Usable& usable);

  // Whether a block of this chain hash would be written: it is not stored, or with fewer planes.
  bool wants(std::uint64_t chain, PlaneBits planes) const;
  bool has_room() const;  // to take one more block to write
  void wait_for_room();
  // The last block of `tokens`, whole blocks, to be written; `bytes` as Backend::read_block gives
  // them.
  void save(std::vector<Token> tokens, CacheSalt salt, PlaneBits planes,
            std::vector<std::byte> bytes);
  // Waits until everything handed over is written.
  void flush();

  void count_restored(std::uint64_t blocks) { n_restored_.fetch_add(blocks); }
  SessionStoreStats stats() const;

 private:
  friend class StoredPrefix;
  struct Entry {
    std::uint64_t bytes = 0;
    std::uint64_t tick = 0;  // of its last use
    PlaneBits planes = 0;
    bool usable = true;  // not damaged
  };
  struct Write {
    std::vector<Token> tokens;
    std::vector<std::uint64_t> chain;
    CacheSalt salt = 0;
    PlaneBits planes = 0;
    std::vector<std::byte> bytes;
  };

  SessionStore(const SessionOrigin& origin, SessionStoreOptions options, int lock);
  Result<void> scan();
  void run();
  std::shared_ptr<StoredPrefix> next_load();
  void load(StoredPrefix& prefix, std::unique_lock<std::mutex>& lock);
  void write(const Write& job, std::unique_lock<std::mutex>& lock);
  Result<SessionFile> read(const StoredPrefix& prefix, int block) const;
  void queue(StoredPrefix& prefix);
  void touch(std::span<const std::uint64_t> chain);
  void put(std::uint64_t chain, const Entry& entry);
  void erase(std::uint64_t chain);
  void spoil(std::uint64_t chain);
  void make_room(std::uint64_t bytes);
  void keep_order() const;
  std::string path_of(std::uint64_t chain) const;
  void log(std::string_view text) const;

  const SessionOrigin origin_;
  const SessionStoreOptions options_;
  const int lock_;            // a descriptor
  const std::string prefix_;  // of the names of own files

  std::mutex wake_mutex_;
  std::function<void()> wake_;  // guarded by it

  mutable std::mutex mutex_;  // guards everything below but the thread
  std::condition_variable work_;
  std::condition_variable done_;
  std::unordered_map<std::uint64_t, Entry> entries_;          // by chain hash
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_use_;  // (tick, chain hash)
  std::deque<Write> writes_;                                  // the first one may be at work
  std::deque<std::weak_ptr<StoredPrefix>> loads_;
  bool stop_ = false;
  std::uint64_t bytes_ = 0;
  std::uint64_t next_tick_ = 1;
  std::uint64_t first_tick_ = 1;  // of this run
  SessionStoreStats counters_;
  std::atomic<std::uint64_t> n_restored_ = 0;
  std::thread thread_;
};

}  // namespace kipp
