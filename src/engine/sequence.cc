#include "engine/sequence.h"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <string>
#include <utility>

#include "model/step_plan.h"

namespace kipp {
namespace {

int worst_case(std::size_t prompt, int max_tokens, int capacity) {
  const auto wanted = static_cast<std::int64_t>(prompt) + max_tokens;
  return static_cast<int>(std::min<std::int64_t>(wanted, capacity));
}

Result<void> check_logprobs(const char* field, int n) {
  if (n >= -1 && n <= kMaxTopLogprobs) return {};
  return fail(ErrorCode::invalid, "{}: expected -1 (none) to {}, found {}", field, kMaxTopLogprobs,
              n);
}

Result<void> check(const Request& request, int capacity) {
  if (request.prompt.empty()) {
    return fail(ErrorCode::invalid, "prompt: expected at least one token, found none");
  }
  if (request.prompt.size() > static_cast<std::size_t>(capacity)) {
    return fail(ErrorCode::invalid, "prompt: expected at most {} tokens, found {}", capacity,
                request.prompt.size());
  }
  KIPP_TRY(validate_tokens(request.prompt, "prompt"));
  KIPP_TRY(validate(request.sampling));
  KIPP_TRY(validate_token_counts(request.min_tokens, request.max_tokens));
  KIPP_TRY(check_logprobs("top_logprobs", request.top_logprobs));
  return check_logprobs("prompt_logprobs", request.prompt_logprobs);
}

}  // namespace

Result<std::unique_ptr<Sequence>> Sequence::create(RequestId id, Request request, EventSink sink,
                                                   Place place, const Setting& setting) {
  KIPP_TRY(check(request, setting.capacity));
  KIPP_TRY_ASSIGN(stops, StopMatcher::create(request.stop));
  TextStream text(*setting.tokenizer, std::move(stops), request.min_tokens);
  return std::unique_ptr<Sequence>(new Sequence(id, std::move(request), std::move(sink),
                                                std::move(text), std::move(place), setting));
}

Sequence::Sequence(RequestId id, Request request, EventSink sink, TextStream text, Place place,
                   const Setting& setting)
    : id_(id),
      tokens_(std::move(request.prompt)),
      request_(std::move(request)),
      sink_(std::move(sink)),
      text_(std::move(text)),
      place_(std::move(place)),
      setting_(setting),
      n_prompt_(static_cast<int>(tokens_.size())),
      positions_(worst_case(tokens_.size(), request_.max_tokens, setting.capacity)),
      submitted_(setting.clock->now()) {}

bool Sequence::admit(BlockPool& pool) {
  // What is cached has no logits any more.
  const auto wanted = scores_prompt() ? std::span<const Token>() : prompt();
  table_ = BlockTable::admit(pool, wanted, positions_, request_.salt);
  if (!table_) return false;
  tokens_.reserve(static_cast<std::size_t>(positions_) + 1);  // the last one drawn has no position
  evaluated_ = cached_ = table_->published_positions();
  if (setting_.speculation->drafter) {
    speculator_.emplace(*setting_.speculation,
                        DraftTask{.sampling = request_.sampling,
                                  .n_prompt = n_prompt_,
                                  .n_positions = positions_,
                                  .salt = request_.salt},
                        stop_tokens());
  }
  report_prompt();
  return true;
}

bool Sequence::begin_restore(SessionStore& store, const BlockPool& pool) {
  if (scores_prompt()) return false;
  restore_ = BlockRestore::begin(store, pool, *table_, prompt(), request_.salt);
  return restore_.has_value();
}

BlockRestore::State Sequence::restore(BlockPool& pool, Backend& backend, std::size_t& bytes) {
  const BlockRestore::State state = restore_->go_on(pool, backend, *table_, bytes);
  if (state == BlockRestore::State::done) {
    evaluated_ = cached_ = restore_->positions();
    restore_.reset();
    table_->publish(evaluated());
    report_prompt();
  } else if (state == BlockRestore::State::failed) {
    restore_.reset();
    table_.reset();
    evaluated_ = cached_ = 0;
  }
  return state;
}

SequenceProgress Sequence::progress() const {
  return {.evaluated = evaluated_,
          .total = static_cast<int>(tokens_.size()),
          .phase = evaluated_ < n_prompt_ ? Phase::prompt : Phase::generate,
          .scored = scores_prompt()};
}

int Sequence::look_for_prefix() {
  if (scores_prompt()) return 0;
  const auto resumed = table_->resume(evaluated(), prompt());
  const int skipped = resumed.positions - evaluated_;
  cached_ += skipped;
  evaluated_ = resumed.positions;
  assert(!resumed.copy);  // nothing evaluated is given up
  return skipped;
}

void Sequence::propose(int n_generating) {
  if (!speculator_) return;
  const int n_left = request_.max_tokens - generated_tokens();
  const int n_free = positions_ - static_cast<int>(tokens_.size());
  // Less than a block, so that the rows of a block that only proposals fill are still there when
  // they are rejected.
  const int most = std::min({n_left - 1, n_free, kBlockPositions - 1});
  const auto draft = speculator_->propose(timeline(), most, n_generating);
  n_proposed_ = static_cast<int>(draft.size());
  tokens_.insert(tokens_.end(), draft.begin(), draft.end());
}

EvalItem Sequence::item(const PlannedItem& planned) {
  if (!began_) began_ = setting_.clock->now();
  const int end = planned.pos + planned.tokens;
  // Proposals may be rejected.
  table_->grow(planned.pos, end, n_proposed_ == 0);
  return {.seq = static_cast<SeqId>(id_ & 0x7fffffff),
          .pos = planned.pos,
          .tokens = std::span(tokens_).subspan(static_cast<std::size_t>(planned.pos),
                                               static_cast<std::size_t>(planned.tokens)),
          .blocks = table_->covering(end),
          .want = planned.want};
}

std::optional<Sequence::Ending> Sequence::accept(const PlannedItem& planned,
                                                 const LogitsView& rows) {
  proposed_.assign(tokens_.end() - n_proposed_, tokens_.end());
  tokens_.resize(timeline().size());
  n_proposed_ = 0;
  const bool in_prompt = planned.pos < n_prompt_;
  // Of the proposals, what the scheduler granted.
  const int verified = in_prompt ? 0 : rows.rows - 1;
  evaluated_ = planned.pos + planned.tokens - verified;
  publish();
  if (in_prompt) {
    if (scores_prompt()) report_prompt_logprobs(planned, rows);
    if (evaluated_ == n_prompt_) generating_ = setting_.clock->now();
    report_prompt();
    if (evaluated_ < n_prompt_) return std::nullopt;
  }

  int row = in_prompt ? rows.rows - 1 : 0;
  auto ended = draw(rows.row(row));
  while (!ended && row < verified && tokens_.back() == proposed_[static_cast<std::size_t>(row)]) {
    ++evaluated_;
    ended = draw(rows.row(++row));
  }
  if (verified > 0) {
    assert(table_->kept(evaluated_) == evaluated_);
    table_->truncate(evaluated_);
    publish();
    speculator_->settle(verified, row);
  }
  if (speculator_) speculated_ = speculator_->stats();
  if (!ended) return std::nullopt;
  return Ending{.reason = *ended, .logits = rows.row(row)};
}

void Sequence::publish() { table_->publish(evaluated()); }

void Sequence::report_prompt() {
  sink_(id_, PromptProgress{.done = evaluated_, .total = n_prompt_, .cached = cached_});
}

// Row i is what the model expected behind the planned item's token i.
void Sequence::report_prompt_logprobs(const PlannedItem& planned, const LogitsView& rows) {
  PromptLogprobs event{.first = planned.pos + 1, .tokens = {}};
  const int n = std::min(rows.rows, n_prompt_ - event.first);
  event.tokens.reserve(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    const Token token = tokens_[static_cast<std::size_t>(event.first + i)];
    event.tokens.push_back(logprobs_of(rows.row(i), token, request_.prompt_logprobs));
  }
  if (n > 0) sink_(id_, std::move(event));
}

// One token, in the order of generate(): what ends it is checked from the token outwards.
std::optional<FinishReason> Sequence::draw(std::span<const float> logits) {
  if (generated_tokens() == request_.max_tokens) return FinishReason::length;
  const auto stops = stop_tokens();
  const auto barred = generated_tokens() < request_.min_tokens ? stops : std::span<const Token>();
  const Token token = sample(logits, request_.sampling, {prompt(), generated(), barred},
                             static_cast<std::uint64_t>(generated_tokens()));
  tokens_.push_back(token);
  if (std::ranges::find(stops, token) != stops.end()) return FinishReason::stop;
  TextDelta delta{.token = token, .text = text_.push(token), .logprobs = {}};
  if (request_.top_logprobs >= 0) {
    delta.logprobs = logprobs_of(logits, token, request_.top_logprobs);
  }
  sink_(id_, std::move(delta));
  if (text_.stopped()) return FinishReason::stop;
  if (generated_tokens() == request_.max_tokens || evaluated_ == setting_.capacity) {
    return FinishReason::length;
  }
  return std::nullopt;
}

void Sequence::release() {
  restore_.reset();
  table_.reset();
  speculator_.reset();  // a draft model's memory goes back too
  place_.reset();
}

FinishReason Sequence::finish(FinishReason reason, std::span<const float> last_logits) {
  release();
  if (std::string rest = text_.finish(); !rest.empty()) {
    sink_(id_, TextDelta{.token = {}, .text = std::move(rest), .logprobs = {}});
  }
  if (text_.stopped()) reason = FinishReason::stop;
  Finished finished{.reason = reason,
                    .matched_stop = text_.matched_stop(),
                    .usage = {.prompt_tokens = n_prompt_,
                              .cached_tokens = cached_,
                              .generated_tokens = generated_tokens()},
                    .timings = timings(),
                    .speculation = speculated_,
                    .logits_hash = {}};
  if (!last_logits.empty()) {
    finished.logits_hash = XXH3_64bits(last_logits.data(), last_logits.size_bytes());
    if (reason == FinishReason::stop && !text_.stopped() && request_.top_logprobs >= 0) {
      finished.stop_token = logprobs_of(last_logits, tokens_.back(), request_.top_logprobs);
    }
  }
  sink_(id_, std::move(finished));
  return reason;
}

void Sequence::fail(const Error& error) {
  release();
  sink_(id_, Failed{error});
}

Timings Sequence::timings() const {
  const Clock::Time now = setting_.clock->now();
  const Clock::Time began = began_.value_or(now);
  const Clock::Time generating = generating_.value_or(now);
  return {.queue = seconds(began - submitted_),
          .prompt = seconds(generating - began),
          .decode = seconds(now - generating)};
}

}  // namespace kipp
