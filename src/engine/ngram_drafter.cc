#include "engine/ngram_drafter.h"

#include <algorithm>
#include <bit>

#include "base/rng.h"

namespace kipp {
namespace {

static_assert(NgramIndex::kLengths.size() <= kDraftKinds);

constexpr std::size_t kFewestSlots = 1024;

// How often the token after a match of such a length was right in English prose and stories; where
// the text at hand differs, the estimates follow it.
constexpr std::array<double, NgramIndex::kLengths.size()> kLikely = {0.2, 0.3,  0.4, 0.6,
                                                                     0.7, 0.85, 0.9};

std::span<const Token> run_before(std::span<const Token> timeline, int end, int length) {
  return timeline.subspan(static_cast<std::size_t>(end - length), static_cast<std::size_t>(length));
}

}  // namespace

std::optional<NgramIndex::Match> NgramIndex::find(std::span<const Token> timeline) {
  const auto size = static_cast<int>(timeline.size());
  // The run that ends the timeline is entered with the next token: it is what is looked for.
  while (indexed_ + 1 < size) insert(timeline, ++indexed_);
  if (slots_.empty()) return std::nullopt;
  for (std::size_t level = kLengths.size(); level-- > 0;) {
    const int length = kLengths[level];
    if (length > size) continue;
    const std::uint32_t hash = hash_of(run_before(timeline, size, length), level);
    const Slot& slot = slot_of(timeline, size, level, hash);
    if (slot.end != 0) {
      return Match{.end = slot.end, .length = length, .level = static_cast<int>(level)};
    }
  }
  return std::nullopt;
}

// The level is part of the hash, so that slots of two levels never compare equal.
std::uint32_t NgramIndex::hash_of(std::span<const Token> run, std::size_t level) {
  std::uint64_t hash = 0;
  for (const Token token : run) hash = mix64(hash * 31 + static_cast<std::uint64_t>(token) + 1);
  return (static_cast<std::uint32_t>(hash >> 32) & ~7u) | static_cast<std::uint32_t>(level);
}

// The slot of the run that ends at `end`, or the empty one where it belongs.
NgramIndex::Slot& NgramIndex::slot_of(std::span<const Token> timeline, int end, std::size_t level,
                                      std::uint32_t hash) {
  const auto run = run_before(timeline, end, kLengths[level]);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = mix64(hash) & mask;
  while (slots_[at].end != 0 &&
         !(slots_[at].hash == hash &&
           std::ranges::equal(run_before(timeline, slots_[at].end, kLengths[level]), run))) {
    at = (at + 1) & mask;
  }
  return slots_[at];
}

void NgramIndex::insert(std::span<const Token> timeline, int end) {
  if (2 * (n_used_ + kLengths.size()) > slots_.size()) grow();
  for (std::size_t level = 0; level < kLengths.size() && kLengths[level] <= end; ++level) {
    const std::uint32_t hash = hash_of(run_before(timeline, end, kLengths[level]), level);
    Slot& slot = slot_of(timeline, end, level, hash);
    if (slot.end == 0) ++n_used_;
    slot = {.hash = hash, .end = end};
  }
}

void NgramIndex::grow() {
  std::vector<Slot> old(std::max(kFewestSlots, 2 * slots_.size()));
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.end == 0) continue;
    std::size_t at = mix64(slot.hash) & mask;
    while (slots_[at].end != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

std::optional<DraftProspect> NgramDrafter::look(std::span<const Token> timeline) {
  match_ = index_.find(timeline);
  if (!match_) return std::nullopt;
  return DraftProspect{.kind = match_->level,
                       .likely = kLikely[static_cast<std::size_t>(match_->level)]};
}

Result<void> NgramDrafter::draft(std::span<const Token> timeline, int n, std::vector<Token>& out) {
  if (!match_) return {};
  // Where what followed reaches the end of the timeline, it goes on with itself: a loop.
  const auto end = static_cast<std::size_t>(match_->end);
  const std::size_t period = timeline.size() - end;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    out.push_back(timeline[end + i % period]);
  }
  return {};
}

}  // namespace kipp
