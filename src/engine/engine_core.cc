#include "engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "engine/kv_plan.h"

namespace kipp {
namespace {

// What one step puts in place of stored blocks, so that streams beside it wait for a copy of no
// more than this.
constexpr std::size_t kRestoredBytes = std::size_t{16} << 20;

// Backend and options agreed, so that every admitted sequence can have its token in every step.
EngineOptions effective(const EngineParts& parts, EngineOptions options) {
  if (options.max_step_tokens == 0) options.max_step_tokens = parts.backend->info().max_step_tokens;
  if (options.max_positions == 0) options.max_positions = parts.context_length;
  // Without this a sequence could want more blocks than there are, and never be admitted.
  options.max_positions = std::min(options.max_positions, parts.pool->max_positions());
  return options;
}

Result<void> check_range(const char* field, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::invalid, "{}: expected {} to {}, found {}", field, low, high, value);
}

LogitsView part_of(const LogitsView& logits, int row, int rows) {
  const auto at = static_cast<std::size_t>(row) * static_cast<std::size_t>(logits.vocab);
  return {.data = logits.data + at, .rows = rows, .vocab = logits.vocab};
}

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::create(const EngineParts& parts,
                                                       const EngineOptions& options) {
  const BackendInfo& info = parts.backend->info();
  constexpr int kMaxOpen = 1 << 20;
  if (options.max_step_tokens != 0) {
    KIPP_TRY(check_range("max_step_tokens", options.max_step_tokens, 1, info.max_step_tokens));
  }
  if (options.max_positions != 0) {
    KIPP_TRY(check_range("max_positions", options.max_positions, 1, parts.context_length));
  }
  if (parts.pool->total() < 1) {
    return fail(ErrorCode::invalid, "kv_blocks: expected at least 1, found {}",
                parts.pool->total());
  }
  KIPP_TRY(validate(options.speculation));
  const EngineOptions agreed = effective(parts, options);
  KIPP_TRY(check_range("max_sequences", options.max_sequences, 1,
                       std::min(agreed.max_step_tokens, info.max_logit_rows)));
  KIPP_TRY(check_range("max_queue", options.max_queue, 0, kMaxOpen));
  KIPP_TRY(check_range("prompt_tokens_beside_generation", options.prompt_tokens_beside_generation,
                       1, kMaxOpen));
  if (options.stream_slowdown != 0 && !(options.stream_slowdown > 1)) {
    return fail(ErrorCode::invalid, "stream_slowdown: expected more than 1, or 0, found {}",
                options.stream_slowdown);
  }
  return std::unique_ptr<EngineCore>(new EngineCore(parts, agreed));
}

EngineCore::EngineCore(const EngineParts& parts, const EngineOptions& options)
    : parts_(parts),
      options_(options),
      setting_{.tokenizer = parts.tokenizer,
               .stop_tokens = parts.stop_tokens,
               .capacity = options.max_positions,
               .clock = parts.clock,
               .speculation = &options_.speculation},
      budget_{.tokens = options.max_step_tokens,
              .logit_rows = parts.backend->info().max_logit_rows,
              .prompt_tokens_beside_generation = options.prompt_tokens_beside_generation},
      pace_(options.prompt_tokens_beside_generation, options.stream_slowdown) {
  const auto n = static_cast<std::size_t>(options.max_sequences);
  running_.reserve(n);
  progress_.reserve(n);
  planned_.reserve(n);
  items_.reserve(n);
  if (parts.store != nullptr) saver_.emplace(*parts.pool, *parts.backend, *parts.store);
}

Result<std::unique_ptr<Sequence>> EngineCore::prepare(Request request, EventSink sink) {
  n_open_.fetch_add(1);
  Place place(&n_open_);
  if (n_open_.load() > options_.max_sequences + options_.max_queue) {
    return fail(ErrorCode::exhausted,
                "queue: expected fewer than {} open requests, found no place free",
                options_.max_sequences + options_.max_queue);
  }
  return Sequence::create(next_id_.fetch_add(1), std::move(request), std::move(sink),
                          std::move(place), setting_);
}

void EngineCore::submit(std::unique_ptr<Sequence> sequence) {
  waiting_.push_back(std::move(sequence));
}

void EngineCore::cancel(RequestId id) {
  const auto has_id = [id](const std::unique_ptr<Sequence>& s) { return s->id() == id; };
  if (const auto at = std::ranges::find_if(running_, has_id); at != running_.end()) {
    end(*at, FinishReason::interrupted);
    running_.erase(at);
  } else if (const auto read = std::ranges::find_if(restoring_, has_id); read != restoring_.end()) {
    end(*read, FinishReason::interrupted);
    restoring_.erase(read);
  } else if (const auto queued = std::ranges::find_if(waiting_, has_id); queued != waiting_.end()) {
    end(*queued, FinishReason::interrupted);
    waiting_.erase(queued);
  }
}

void EngineCore::fail_all(const Error& error) {
  stats_.failed += running_.size() + restoring_.size() + waiting_.size();
  for (const auto& sequence : running_) sequence->fail(error);
  for (const auto& sequence : restoring_) sequence->fail(error);
  for (const auto& sequence : waiting_) sequence->fail(error);
  running_.clear();
  restoring_.clear();
  waiting_.clear();
}

bool EngineCore::step() {
  const Clock::Time start = parts_.clock->now();
  admit();
  const bool restored = restore();
  plan();
  if (items_.empty()) return restored;
  const Clock::Time eval_start = parts_.clock->now();
  const auto logits = parts_.backend->eval(items_);
  stats_.eval_time += parts_.clock->now() - eval_start;
  ++stats_.steps;
  int n_tokens = 0;
  int n_prompt_tokens = 0;
  for (const PlannedItem& item : planned_) {
    n_tokens += item.tokens;
    const auto phase = progress_[static_cast<std::size_t>(item.sequence)].phase;
    if (phase == Phase::prompt) n_prompt_tokens += item.tokens;
  }
  stats_.step_tokens += static_cast<std::uint64_t>(n_tokens);
  stats_.largest_step = std::max(stats_.largest_step, n_tokens);
  if (logits) {
    accept(*logits);
  } else {
    fail_step(logits.error());
  }
  std::erase(running_, nullptr);
  const Clock::Time took = parts_.clock->now() - start;
  pace_.learn(n_generating_, n_prompt_tokens, took);
  stats_.step_time += took;
  stats_.longest_step = std::max(stats_.longest_step, took);
  return true;
}

void EngineCore::admit() {
  const auto most = static_cast<std::size_t>(options_.max_sequences);
  while (!waiting_.empty() && running_.size() + restoring_.size() < most) {
    if (!waiting_.front()->admit(*parts_.pool)) break;
    std::unique_ptr<Sequence> sequence = std::move(waiting_.front());
    waiting_.pop_front();
    if (parts_.store != nullptr && sequence->begin_restore(*parts_.store, *parts_.pool)) {
      restoring_.push_back(std::move(sequence));
    } else {
      start(std::move(sequence));
    }
  }
}

void EngineCore::start(std::unique_ptr<Sequence> sequence) {
  stats_.cached_tokens += static_cast<std::uint64_t>(sequence->cached_tokens());
  running_.push_back(std::move(sequence));
}

// Whether there was anything to do.
bool EngineCore::restore() {
  bool moved = false;
  std::size_t bytes = kRestoredBytes;
  for (auto& sequence : restoring_) {
    if (bytes == 0) break;
    const BlockRestore::State state = sequence->restore(*parts_.pool, *parts_.backend, bytes);
    moved = moved || state != BlockRestore::State::waiting;
    if (state == BlockRestore::State::done) start(std::move(sequence));
    if (state == BlockRestore::State::failed) waiting_.push_front(std::move(sequence));
  }
  std::erase(restoring_, nullptr);
  return moved;
}

bool EngineCore::save_one() { return saver_ && saver_->save_one(); }

void EngineCore::save_all() {
  if (!saver_) return;
  saver_->save_all();
  parts_.store->flush();
}

void EngineCore::plan() {
  progress_.clear();
  items_.clear();
  for (const auto& sequence : running_) {
    if (sequence->progress().phase == Phase::prompt) {
      stats_.cached_tokens += static_cast<std::uint64_t>(sequence->look_for_prefix());
    }
    progress_.push_back(sequence->progress());
  }
  n_generating_ =
      static_cast<int>(std::ranges::count(progress_, Phase::generate, &SequenceProgress::phase));
  if (options_.speculation.drafter) propose();
  StepBudget budget = budget_;
  budget.prompt_tokens_beside_generation = pace_.tokens();
  plan_step(progress_, budget, planned_);
  for (const PlannedItem& planned : planned_) items_.push_back(sequence_of(planned)->item(planned));
  hand_over_planes(*parts_.pool, *parts_.backend);
}

void EngineCore::propose() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (progress_[i].phase != Phase::generate) continue;
    running_[i]->propose(n_generating_);
    progress_[i] = running_[i]->progress();
  }
}

void EngineCore::accept(const LogitsView& logits) {
  int row = 0;
  for (const PlannedItem& planned : planned_) {
    auto& sequence = sequence_of(planned);
    const int rows = planned.rows();
    const LogitsView own = part_of(logits, row, rows);
    row += rows;
    const int drawn_before = sequence->generated_tokens();
    const SpeculationStats speculated_before = sequence->speculated();
    const auto ended = sequence->accept(planned, own);
    const int drawn = sequence->generated_tokens() - drawn_before;
    stats_.generated_tokens += static_cast<std::uint64_t>(drawn);
    stats_.speculation += sequence->speculated() - speculated_before;
    if (progress_[static_cast<std::size_t>(planned.sequence)].phase == Phase::prompt) {
      stats_.prompt_tokens += static_cast<std::uint64_t>(planned.tokens);
    }
    if (ended) end(sequence, ended->reason, ended->logits);
  }
}

void EngineCore::fail_step(const Error& error) {
  stats_.failed += planned_.size();
  for (const PlannedItem& planned : planned_) {
    sequence_of(planned)->fail(error);
    sequence_of(planned).reset();
  }
}

void EngineCore::end(std::unique_ptr<Sequence>& sequence, FinishReason reason,
                     std::span<const float> last_logits) {
  reason = sequence->finish(reason, last_logits);
  ++stats_.finished;
  ++stats_.finished_by[static_cast<std::size_t>(reason)];
  if (reason == FinishReason::interrupted) {
    stats_.cancelled_tokens += static_cast<std::uint64_t>(sequence->evaluated_prompt_tokens() +
                                                          sequence->generated_tokens());
  }
  sequence.reset();
}

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<int>(running_.size() + restoring_.size());
  stats.waiting = static_cast<int>(waiting_.size());
  stats.heartbeat = parts_.clock->now();
  stats.pool = parts_.pool->stats();
  if (parts_.store != nullptr) stats.store = parts_.store->stats();
  return stats;
}

}  // namespace kipp
