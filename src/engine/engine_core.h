// What the engine does, without its thread: a queue, the admitted sequences, and step(). Everything
// but prepare() happens on one thread, in the order of the calls, so that a test can stop between
// any two steps.
//
// Requests are admitted in the order of their arrival, and only when the pool promises all blocks
// they can ever need. The first that does not fit waits, and all behind it wait with it: whoever is
// small must not keep overtaking whoever is large. So an admitted sequence never runs out of blocks
// and is never thrown back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "engine/prompt_pace.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/session_store.h"
#include "engine/stored_blocks.h"
#include "kv/block_pool.h"
#include "tokenizer/tokenizer.h"

namespace kipp {

struct EngineOptions {
  int max_sequences = 32;   // evaluated at once
  int max_queue = 256;      // waiting beyond them; submit is refused when that many wait
  int max_step_tokens = 0;  // of one step; 0: what the backend takes
  // The most prompt tokens of a step that also continues running sequences, and how many times as
  // long such a step may take as one without them (engine/prompt_pace.h): what is added to the time
  // between two tokens of a stream while somebody's long prompt is read. 0: no such bound.
  int prompt_tokens_beside_generation = 256;
  double stream_slowdown = 1.7;  // below 2, since single steps scatter
  int max_positions = 0;         // of one sequence; 0: the checkpoint's context length
  Speculation speculation = {};  // off; changes how fast tokens come and nothing else
};

// What an engine works on. All of it outlives the engine, which is the only user of backend and
// pool.
struct EngineParts {
  Backend* backend = nullptr;
  BlockPool* pool = nullptr;
  const Tokenizer* tokenizer = nullptr;
  std::span<const Token> stop_tokens;
  int context_length = 0;
  const Clock* clock = &steady_clock();
  SessionStore* store = nullptr;  // of prefixes on disk; none: memory alone
};

struct EngineStats {
  int running = 0;
  int waiting = 0;
  // Since the start.
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens = 0;     // evaluated
  std::uint64_t cached_tokens = 0;     // found in the cache instead
  std::uint64_t generated_tokens = 0;  // drawn
  SpeculationStats speculation;
  std::uint64_t finished = 0;
  std::array<std::uint64_t, kFinishReasons> finished_by = {};  // of these; by FinishReason
  std::uint64_t failed = 0;
  // Thrown away: evaluated of the prompts of requests that ended interrupted, and drawn for them.
  std::uint64_t cancelled_tokens = 0;
  std::uint64_t step_tokens = 0;  // evaluated in all steps, proposals included
  int largest_step = 0;           // the most tokens of one
  Clock::Time step_time{0};       // of all steps
  Clock::Time longest_step{0};    // of one
  Clock::Time eval_time{0};       // of all steps, in the backend
  Clock::Time heartbeat{0};       // when the engine's thread last came by, busy or not
  PoolStats pool;
  SessionStoreStats store;
};

class EngineCore {
 public:
  // Refuses options out of range.
  static Result<std::unique_ptr<EngineCore>> create(const EngineParts& parts,
                                                    const EngineOptions& options);

  // A checked request with a place, which it keeps until its terminal event. Refused when the
  // request is not valid, or with ErrorCode::exhausted when the queue is full. From any thread.
  Result<std::unique_ptr<Sequence>> prepare(Request request, EventSink sink);

  // To the end of the queue.
  void submit(std::unique_ptr<Sequence> sequence);
  // Ends the request with FinishReason::interrupted; nothing when it has ended.
  void cancel(RequestId id);
  // Ends all of them.
  void fail_all(const Error& error);

  // Admits whoever fits, puts stored blocks in place, evaluates one step and tells the readers.
  // False when there was nothing to do, but perhaps to wait for the store. When the backend fails,
  // so do the requests of that step, and no others; their blocks go back unpublished.
  bool step();

  // With a store: hands it one block that it does not have; false when there is none or no room.
  bool save_one();
  // All of them; waits until they are written.
  void save_all();

  EngineStats stats() const;

 private:
  EngineCore(const EngineParts& parts, const EngineOptions& options);

  void admit();
  void start(std::unique_ptr<Sequence> sequence);
  bool restore();
  void plan();
  void propose();
  void accept(const LogitsView& logits);
  void fail_step(const Error& error);
  void end(std::unique_ptr<Sequence>& sequence, FinishReason reason,
           std::span<const float> last_logits = {});
  std::unique_ptr<Sequence>& sequence_of(const PlannedItem& item) {
    return running_[static_cast<std::size_t>(item.sequence)];
  }

  const EngineParts parts_;
  const EngineOptions options_;
  const Sequence::Setting setting_;
  const StepBudget budget_;  // with the most prompt tokens beside generation
  PromptPace pace_;
  std::atomic<RequestId> next_id_ = 1;
  std::atomic<int> n_open_ = 0;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> restoring_;  // admitted, for the store to read
  // In the order of arrival; empty pointers, within a step, where a request has ended.
  std::vector<std::unique_ptr<Sequence>> running_;
  EngineStats stats_;
  std::optional<BlockSaver> saver_;

  // Of the current step; reserved for max_sequences.
  std::vector<SequenceProgress> progress_;
  int n_generating_ = 0;  // of them
  std::vector<PlannedItem> planned_;
  std::vector<EvalItem> items_;
};

}  // namespace kipp
