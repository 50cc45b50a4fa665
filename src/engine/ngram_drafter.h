// Prompt lookup: text repeats itself, so what followed the last occurrence of the latest tokens is
// a guess at what follows now. Quoting, code, lists and loops gain; the guess itself takes about a
// microsecond.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/drafter.h"

namespace kipp {

// Where the end of a timeline occurred before. Of each length in kLengths the last occurrence of
// every run is kept, so that a token costs kLengths.size() insertions, whatever the text: no
// search goes back through the timeline.
class NgramIndex {
 public:
  static constexpr std::array<int, 7> kLengths = {2, 3, 4, 6, 8, 12, 16};  // at most kDraftKinds

  struct Match {
    int end = 0;     // the occurrence is timeline[end - length, end), and end < timeline.size()
    int length = 0;  // the greatest of kLengths that occurs
    int level = 0;   // its index in kLengths
  };

  // The latest earlier occurrence of the longest possible end of `timeline`, which must begin with
  // those of the calls before.
  std::optional<Match> find(std::span<const Token> timeline);

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t end = 0;  // 0: empty; no run ends there
  };

  static std::uint32_t hash_of(std::span<const Token> run, std::size_t level);
  Slot& slot_of(std::span<const Token> timeline, int end, std::size_t level, std::uint32_t hash);
  void insert(std::span<const Token> timeline, int end);
  void grow();

  std::vector<Slot> slots_;  // open addressing; a power of two of them
  std::size_t n_used_ = 0;
  int indexed_ = 0;  // runs that end at or before it are there
};

class NgramDrafter final : public Drafter {
 public:
  // The longer the match, the better the guess: the kind is its level.
  std::optional<DraftProspect> look(std::span<const Token> timeline) override;
  Result<void> draft(std::span<const Token> timeline, int n, std::vector<Token>& out) override;

 private:
  NgramIndex index_;
  std::optional<NgramIndex::Match> match_;
};

}  // namespace kipp
