// The library's face: a loaded model, and sessions over it. A session is one mutable timeline of
// tokens whose keys and values are cached; callers hand in whole prompts and sync() decides how
// much to reuse: what the timeline shares with the prompt, and what other sessions of the model
// have computed before (kv/block_pool.h). Neither changes a result.
//
// One thread at a time may use a model and its sessions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/types.h"
#include "engine/kv_plan.h"
#include "engine/sampler.h"
#include "engine/session_file.h"
#include "kv/block_pool.h"
#include "model/artifact.h"
#include "tokenizer/tokenizer.h"

namespace kipp {

struct ModelOptions {
  std::string backend;  // a registered name; nothing falls back
  bool allow_synthetic = false;
  // Memory for keys and values: so many bytes; else for so many blocks, held by so many sequences;
  // else for one sequence of the checkpoint's full context.
  std::uint64_t kv_bytes = 0;
  int kv_blocks = 0;
  int kv_sequences = 1;
  KvPolicy kv = {};
  bool allow_unproven_kv = false;    // a policy that the checkpoint's gate has not passed
  KvStore kv_store = KvStore::bf16;  // of a policy that is all BF16
  LoadOptions load = {};  // threads, where weights live, progress while they are made ready
};

// A loaded model: artifact, tokenizer and backend. Immutable but for the cache, which is the
// backend's bytes and the pool that says what is where; must outlive its sessions.
class Model {
 public:
  static Result<std::shared_ptr<Model>> open(const std::string& path, const ModelOptions& options);
  ~Model();

  const Artifact& artifact() const;
  const Checkpoint& checkpoint() const;
  const Tokenizer& tokenizer() const;
  Backend& backend();
  BlockPool& pool();
  PoolStats pool_stats() const;
  const KvPlan& kv_plan() const;

  // Whose keys and values its blocks hold, for what is stored outside the model.
  const SessionOrigin& origin() const;

  // The model for one owner alone, an engine, for as long as the returned pointer lives. Refused
  // while sessions or another owner use it; meanwhile no session can be created.
  static Result<std::shared_ptr<Model>> claim(std::shared_ptr<Model> model);

 private:
  friend class Session;
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Session {
 public:
  // capacity: the most positions this timeline may hold, at most the checkpoint's context length.
  // Blocks for all of them are promised to it, so that it never fails for want of one. Sessions of
  // different salts share nothing.
  static Result<Session> create(std::shared_ptr<Model> model, int capacity, CacheSalt salt = 0);
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();  // gives its blocks back; what the full ones hold may still be found

  // Makes the timeline equal to `prompt`, evaluating only what is neither in it nor found in the
  // cache; returns how many tokens were reused. The last token is always evaluated, so that its
  // logits exist. `progress(done,
  // total)` is called before the first chunk and after each; `cancel` set to true stops before the
  // next chunk with ErrorCode::interrupted and keeps what was evaluated. A prompt that is refused
  // (empty, too long, an id that names no token) leaves the timeline as it was.
  using Progress = std::function<void(int done, int total)>;
  Result<int> sync(std::span<const Token> prompt, const Progress& progress = {},
                   const std::atomic<bool>* cancel = nullptr);
  // Appends one token and evaluates it.
  Result<void> append(Token token);
  // Appends tokens, at most max_scored(), and returns logits for each of them
  // (speculation, prompt log-probabilities). The rows are the backend's: valid until the next eval
  // of any session.
  Result<LogitsView> append_scored(std::span<const Token> tokens);
  // After append_scored(): forgets everything from position `length` on, as truncate(), and what is
  // left is sure to stay. `logits`, the row of its last token, become those of the session.
  Result<void> keep(int length, std::span<const float> logits);
  // One step for several sessions of one model, so that its weights are read once: each appends its
  // tokens and has the logits of the last one. Together at most the backend's max_step_tokens, and
  // at most max_logit_rows sessions. All or nothing.
  struct Step {
    Session* session = nullptr;
    std::span<const Token> tokens;  // at least one
  };
  static Result<void> append_together(std::span<const Step> steps);
  // How many tokens of `prompt` sync() would reuse now.
  Result<int> match(std::span<const Token> prompt);
  // Forgets everything from position `length` on.
  Result<void> truncate(int length);
  // A second session with the same tokens, logits and capacity, which goes its own way from here.
  // Their full blocks are shared, the open one is copied. Fails when the pool cannot promise it
  // its capacity.
  Result<Session> fork();

  // Writes the timeline with its keys and values to a file (engine/session_file.h).
  Result<void> save(const std::string& path, const ByteProgress& progress = {});
  // Makes the timeline equal to the saved one, logits included, without evaluating anything. A file
  // that is refused leaves it as it was.
  Result<void> restore(const std::string& path, const ByteProgress& progress = {});

  std::span<const Token> tokens() const;
  int capacity() const;
  CacheSalt salt() const;
  int max_scored() const;  // the most tokens append_scored() takes
  // Of the last token, [kVocabRows]; valid until this session's next call that changes it. Empty
  // when the last token was not just evaluated: at the beginning, after truncate, after an
  // interrupted sync.
  std::span<const float> logits() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kipp
