#include "kvquant/differential.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <new>

#include "kvquant/codec.h"
#include "kvquant/cpu_ref.h"
#include "kvquant/differential_block-inl.h"

namespace kvquant {
namespace differential {
namespace {

constexpr Side kBothSides[] = {Side::key, Side::value};
constexpr BitWidth kEveryWidth[] = {BitWidth::bf16, BitWidth::int8, BitWidth::int4, BitWidth::int2};
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr std::uint32_t kUntouched = 0x7fc5a5a5u;  // a NaN that no arithmetic makes

const char* name_of(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::not_finite:
      return "not_finite";
    case Code::unavailable:
      return "unavailable";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::corrupt:
      return "corrupt";
  }
  return "unknown code";
}

// The planes of one side as a block has them from the start, and what it keeps of them while it is
// demoted.
constexpr PlaneSet kAllPlanes(0x0f);
constexpr PlaneSet kNoLow4 = planes_for(BitWidth::bf16) | planes_for(BitWidth::int4);
constexpr PlaneSet kOnlyHi2 = planes_for(BitWidth::bf16) | planes_for(BitWidth::int2);
constexpr PlaneSet kNoCodes = planes_for(BitWidth::bf16);
constexpr PlaneSet kDemotion[] = {kAllPlanes, planes_for(BitWidth::int8),
                                  planes_for(BitWidth::int4), planes_for(BitWidth::int2),
                                  PlaneSet()};

PlaneSet both(PlaneSet a, PlaneSet b) {
  return PlaneSet(static_cast<std::uint8_t>(a.bits() & b.bits()));
}

// Everything a run needs beside its findings. Floats are [33][kv_heads][head_width]: a block, and
// the row that does not fit.
struct Scratch {
  TestBlock expected, found, before;
  std::unique_ptr<float[]> rows[kSides], refused;
  std::unique_ptr<float[]> expected_out[kSides], found_out[kSides];

  Status reserve(const BlockLayout& layout, std::size_t floats) {
    for (TestBlock* block : {&expected, &found, &before}) {
      if (Status status = block->reserve(layout); !status.ok()) return status;
    }
    for (std::unique_ptr<float[]>* array : {&rows[0], &rows[1], &refused, &expected_out[0],
                                            &expected_out[1], &found_out[0], &found_out[1]}) {
      array->reset(new (std::nothrow) float[floats]);
      if (*array != nullptr) continue;
      return Status::fail(Code::out_of_memory, "differential: no memory for %zu elements", floats);
    }
    return {};
  }
};

class Run {
 public:
  Run(KvBackend& candidate, const BlockLayout& layout, const DifferentialConfig& config,
      Scratch& scratch, DifferentialReport& report)
      : candidate_(candidate), layout_(layout), config_(config), s_(scratch), report_(report) {}

  void all() {
    for (int i = 0; i < kInputs; ++i) {
      input_ = static_cast<Input>(i);
      block_ = 0;
      for (; block_ < config_.blocks_per_input; ++block_) run_block(kAllPlanes, kAllPlanes);
      for (const auto& [key, value] :
           {std::pair{kNoLow4, kAllPlanes}, {kNoCodes, kNoLow4}, {kOnlyHi2, kNoCodes}}) {
        run_block(key, value);
        ++block_;
      }
    }
  }

 private:
  // One block through its whole life. Where the two part, what follows would only repeat it: every
  // step below says whether they still agree.
  void run_block(PlaneSet key, PlaneSet value) {
    key = both(key, layout_.planes(Side::key));
    value = both(value, layout_.planes(Side::value));
    draws_ = 0;
    for (const Side side : kBothSides) {
      generate(input_ == Input::not_finite ? Input::gaussian : input_, next_draw(), layout_.shape(),
               layout_.scheme().side(side), {rows(side), floats(kBlockPositions + 1)});
    }
    const bool planes_come_late = block_ % 2 == 1;  // as in a cache: when the codes are made
    for (TestBlock* block : {&s_.expected, &s_.found}) {
      block->reset(planes_come_late ? kNoCodes : key, planes_come_late ? kNoCodes : value);
    }
    bool agree = refused_appends() && refused_reads();
    for (int position = 0; agree && position < kBlockPositions;) {
      if (input_ == Input::not_finite && !refused_values()) return;
      const int room = kBlockPositions - position;
      const int count = std::min(room, piece());
      if (count == room) {
        for (TestBlock* block : {&s_.expected, &s_.found}) block->keep(key, value);
      }
      const std::size_t from = floats(position);
      agree =
          append({rows(Side::key) + from, floats(count)}, {rows(Side::value) + from, floats(count)},
                 Code::ok, place(Side::key, BitWidth::bf16, position, 0));
      const bool middle = position < kBlockPositions / 2 && position + count >= kBlockPositions / 2;
      position += count;
      agree = agree && read_part({});
      if (middle) agree = agree && refused_appends() && refused_reads();
    }
    if (agree && refused_appends() && refused_reads() && read_at_every_width() &&
        read_while_demoted(key, value)) {
      same_after_reads();
    }
  }

  // Rows of the next piece; none at times.
  int piece() {
    if (block_ == 0) return kBlockPositions;
    if (block_ == 1) return 1;
    return random(12);
  }

  // --- appends

  // `where` is what to blame when one of the two refuses and the other does not.
  bool append(std::span<const float> k, std::span<const float> v, Code must, Finding where) {
    if (!same_after_reads()) return false;
    s_.before.copy_from(s_.expected);
    const Status expected = oracle_.quantize_append(layout_, k, v, s_.expected.block);
    const Status found = candidate_.quantize_append(layout_, k, v, s_.found.block);
    where.part = "append";
    if (!same_codes(must, expected.code(), found.code(), where)) return false;
    Finding finding;
    if (expected.ok()) {
      if (!find_stored_difference(layout_, s_.expected, s_.found, finding)) return true;
      note(finding);
      return false;
    }
    for (const TestBlock* block : {&s_.expected, &s_.found}) {
      if (!find_stored_difference(layout_, s_.before, *block, finding)) continue;
      finding.kind = Disagreement::refusal;
      finding.when = block == &s_.expected ? " of the oracle after a refused append"
                                           : " after a refused append";
      note(finding);
      return false;
    }
    return true;
  }

  bool refused_appends() {
    const float* k = rows(Side::key);
    const float* v = rows(Side::value);
    const std::size_t row = floats(1);
    const int room = kBlockPositions - s_.expected.block.positions;
    const std::size_t too_many = floats(room + 1);
    const Code without_plane = room > 0 ? Code::unavailable : Code::invalid_argument;
    const auto try_sizes = [&](std::size_t k_size, std::size_t v_size, Code must, Side blamed) {
      Finding where;
      where.side = blamed;
      where.position = std::min(s_.expected.block.positions, kBlockPositions - 1);
      return append({k, k_size}, {v, v_size}, must, where);
    };
    const auto without_bf16 = [&](Side side) {
      std::uint8_t*& expected = s_.expected.block.plane(side, Plane::bf16);
      std::uint8_t*& found = s_.found.block.plane(side, Plane::bf16);
      std::uint8_t* const kept[] = {expected, found};
      expected = found = nullptr;
      const bool agree = try_sizes(row, row, without_plane, side);
      expected = kept[0];
      found = kept[1];
      return agree;
    };
    return try_sizes(0, 0, Code::ok, Side::key) &&
           try_sizes(row, 0, Code::invalid_argument, Side::value) &&
           try_sizes(row - 1, row, Code::invalid_argument, Side::key) &&
           try_sizes(row + 1, row + 1, Code::invalid_argument, Side::key) &&
           try_sizes(too_many, too_many, Code::invalid_argument, Side::key) &&
           without_bf16(Side::key) && without_bf16(Side::value);
  }

  // One element that must be refused, of each kind, among the next rows of either side.
  bool refused_values() {
    const int position = s_.expected.block.positions;
    const int count = 1 + random(kBlockPositions - position);
    for (const Side side : kBothSides) {
      const QuantScheme& scheme = layout_.scheme().side(side);
      const float largest = largest_value(scheme, layout_.shape().head_width);
      const Side other = side == Side::key ? Side::value : Side::key;
      for (std::uint64_t kind = 0; kind < 5; ++kind) {
        const std::span<float> refused(s_.refused.get(), floats(count));
        generate(Input::not_finite, next_draw() / 5 * 5 + kind, layout_.shape(), scheme, refused);
        std::size_t at = 0;
        while (std::fabs(refused[at]) <= largest) ++at;
        const std::span<const float> good(rows(other) + floats(position), floats(count));
        const Finding where = place(side, BitWidth::bf16, position, at);
        const bool agree = side == Side::key ? append(refused, good, Code::not_finite, where)
                                             : append(good, refused, Code::not_finite, where);
        if (!agree) return false;
      }
    }
    return true;
  }

  // --- reads

  bool read(Tier tier, int first, int count, std::size_t k_size, std::size_t v_size) {
    std::fill_n(found_out(Side::key), reach(k_size), float_of(kUntouched));
    std::fill_n(found_out(Side::value), reach(v_size), float_of(kUntouched));
    const Status expected = oracle_.dequantize_for_attention(
        layout_, s_.expected.block, tier, first, count, {expected_out(Side::key), k_size},
        {expected_out(Side::value), v_size});
    const Status found = candidate_.dequantize_for_attention(layout_, s_.found.block, tier, first,
                                                             count, {found_out(Side::key), k_size},
                                                             {found_out(Side::value), v_size});
    Finding where;
    where.part = "read";
    where.side = readable(Side::key, tier.key) ? Side::value : Side::key;
    if (readable(Side::value, tier.value)) where.side = Side::key;
    where.width = tier.side(where.side);
    where.position = std::clamp(first, 0, kBlockPositions - 1);
    // Which refusals the oracle owes is for its own tests.
    if (!same_codes(expected.code(), expected.code(), found.code(), where)) return false;
    if (expected.ok()) {
      for (const Side side : kBothSides) compare_values(tier, side, first, count);
    }
    return written_within(tier, first, k_size, v_size);
  }

  bool read(Tier tier, int first, int count) {
    return read(tier, first, count, floats(count), floats(count));
  }

  bool read_part(Tier tier) {
    const int positions = s_.expected.block.positions;
    const int first = random(positions + 1);
    return read(tier, first, random(positions - first + 1));
  }

  bool readable(Side side, BitWidth width) const {
    const KvBlock& block = s_.expected.block;
    const QuantScheme& scheme = layout_.scheme().side(side);
    const bool offered =
        width == BitWidth::bf16 || (scheme.bits != BitWidth::bf16 && width <= scheme.bits &&
                                    width >= scheme.narrowest && block.complete());
    return offered && block.present(side).contains(planes_for(width));
  }

  // Values that differ leave the blocks equal, so that there may be worse to find.
  void compare_values(Tier tier, Side side, int first, int count) {
    const KvShape& shape = layout_.shape();
    const auto width = static_cast<std::size_t>(shape.head_width);
    const std::size_t heads = static_cast<std::size_t>(shape.kv_heads * count);
    Finding worst;
    for (std::size_t head = 0; head < heads; ++head) {
      const float* expected = expected_out(side) + head * width;
      const float* found = found_out(side) + head * width;
      double largest = 0;
      for (std::size_t c = 0; c < width; ++c) {
        largest = std::fmax(largest, static_cast<double>(std::fabs(expected[c])));
      }
      for (std::size_t c = 0; c < width; ++c) {
        const double distance =
            apart(static_cast<double>(expected[c]), static_cast<double>(found[c]));
        const double share =
            distance > 0 && largest > 0 ? distance / largest : distance * kInfinite;
        if (distance == 0 || share <= worst.difference) continue;
        worst = place(side, tier.side(side), first, head * width + c);
        worst.expected = static_cast<double>(expected[c]);
        worst.found = static_cast<double>(found[c]);
        worst.difference = share;
      }
    }
    report_.elements += heads * width;
    if (worst.difference == 0) return;
    const bool allowed = worst.difference <= static_cast<double>(config_.largest_difference);
    worst.kind = allowed ? Disagreement::none : Disagreement::value;
    worst.part = "read";
    note(worst);
  }

  // How far a read of this size might be overrun: one row.
  std::size_t reach(std::size_t size) const {
    return std::min(size + floats(1), floats(kBlockPositions + 1));
  }

  bool written_within(Tier tier, int first, std::size_t k_size, std::size_t v_size) {
    for (const Side side : kBothSides) {
      const float* found = found_out(side);
      const std::size_t size = side == Side::key ? k_size : v_size;
      for (std::size_t i = size; i < reach(size); ++i) {
        if (bits_of(found[i]) == kUntouched) continue;
        Finding finding = place(side, tier.side(side), std::max(first, 0), i);
        finding.kind = Disagreement::value;
        finding.part = "element past the end of a read";
        finding.expected = static_cast<double>(float_of(kUntouched));
        finding.found = static_cast<double>(found[i]);
        finding.difference = kInfinite;
        note(finding);
        return false;
      }
    }
    return true;
  }

  bool refused_reads() {
    const int positions = s_.expected.block.positions;
    const std::size_t all = floats(positions);
    const Tier tier;  // BF16
    if (positions > 0 && !(read(tier, 0, positions, all - 1, all) &&
                           read(tier, 0, positions, all, all + 1) && read(tier, 0, 1, 0, 0))) {
      return false;
    }
    return read(tier, -1, 1) && read(tier, 0, -1, 0, 0) && read(tier, positions, 1) &&
           read(tier, positions + 1, 0) && read(tier, 1, positions) &&
           read(tier, INT_MAX, INT_MAX, 0, 0) && read(tier, INT_MIN, INT_MIN, 0, 0) &&
           read_all_tiers(0, std::min(positions, 1));
  }

  bool read_all_tiers(int first, int count) {
    for (const BitWidth key : kEveryWidth) {
      for (const BitWidth value : kEveryWidth) {
        if (!read({key, value}, first, count)) return false;
      }
    }
    return true;
  }

  // Both sides as wide as this block lets them, then narrower together.
  bool read_at_every_width() {
    Tier tier;
    for (const BitWidth width : kEveryWidth) {
      if (readable(Side::key, width)) tier.key = width;
      if (readable(Side::value, width)) tier.value = width;
      if (!(read(tier, 0, kBlockPositions) && read(tier, 0, 1) && read_part(tier) &&
            read(tier, kBlockPositions - 1, 1) && read(tier, kBlockPositions, 0))) {
        return false;
      }
    }
    return true;
  }

  // Values are demoted one step ahead of keys.
  bool read_while_demoted(PlaneSet key, PlaneSet value) {
    PlaneSet ahead = kAllPlanes;
    for (const PlaneSet now : kDemotion) {
      for (TestBlock* block : {&s_.expected, &s_.found}) {
        block->keep(both(key, ahead), both(value, now));
      }
      if (!read_all_tiers(random(kBlockPositions - 1), 2)) return false;
      ahead = now;
    }
    return true;
  }

  bool same_after_reads() {
    Finding finding;
    if (!find_stored_difference(layout_, s_.expected, s_.found, finding)) return true;
    finding.when = " after reads";
    note(finding);
    return false;
  }

  // --- findings

  bool same_codes(Code must, Code expected, Code found, Finding where) {
    where.kind = Disagreement::refusal;
    where.error_codes = true;
    where.difference = kInfinite;
    if (expected != must) {
      where.when = " of the oracle";
      where.expected = static_cast<double>(must);
      where.found = static_cast<double>(expected);
    } else if (found != expected) {
      where.expected = static_cast<double>(expected);
      where.found = static_cast<double>(found);
    } else {
      return true;
    }
    note(where);
    return false;
  }

  // The place of element i of rows that begin at `first`.
  Finding place(Side side, BitWidth width, int first, std::size_t i) const {
    const KvShape& shape = layout_.shape();
    const int inside = static_cast<int>(i % floats(1));
    Finding finding;
    finding.side = side;
    finding.width = width;
    finding.position = first + static_cast<int>(i / floats(1));
    finding.head = inside / shape.head_width;
    finding.channel = inside % shape.head_width;
    return finding;
  }

  // Keeps the gravest and, among those of a kind, the first that is furthest apart.
  void note(const Finding& finding) {
    const bool graver =
        finding.kind > report_.disagreement ||
        (finding.kind == report_.disagreement && finding.difference > report_.difference);
    if (!graver) return;
    report_.disagreement = finding.kind;
    report_.agrees = finding.kind == Disagreement::none;
    report_.input = input_;
    report_.side = finding.side;
    report_.width = finding.width;
    report_.position = finding.position;
    report_.head = finding.head;
    report_.channel = finding.channel;
    report_.expected = finding.expected;
    report_.found = finding.found;
    report_.difference = finding.difference;
    char numbers[64];
    if (finding.error_codes) {
      std::snprintf(numbers, sizeof numbers, "expected %s, found %s",
                    name_of(static_cast<Code>(finding.expected)),
                    name_of(static_cast<Code>(finding.found)));
    } else {
      std::snprintf(numbers, sizeof numbers, "expected %.9g, found %.9g", finding.expected,
                    finding.found);
    }
    std::snprintf(report_.what, sizeof report_.what,
                  "%s: %s %s%s at %s, position %d, head %d, channel %d: %s",
                  kvquant::name_of(input_), kvquant::name_of(finding.side), finding.part,
                  finding.when, kvquant::name_of(finding.width), finding.position, finding.head,
                  finding.channel, numbers);
  }

  // --- sizes, memory, draws

  std::size_t floats(int positions) const {
    return positions < 0 ? 0
                         : static_cast<std::size_t>(positions) *
                               static_cast<std::size_t>(layout_.shape().row());
  }
  float* rows(Side side) { return s_.rows[static_cast<int>(side)].get(); }
  float* expected_out(Side side) { return s_.expected_out[static_cast<int>(side)].get(); }
  float* found_out(Side side) { return s_.found_out[static_cast<int>(side)].get(); }

  std::uint64_t next_draw() {
    const std::uint64_t key = draw(config_.seed, static_cast<std::uint64_t>(input_));
    return draw(draw(key, static_cast<std::uint64_t>(block_)), draws_++);
  }
  int random(int bound) {
    return static_cast<int>(next_draw() % static_cast<std::uint64_t>(bound));
  }

  KvBackend& candidate_;
  CpuRefBackend oracle_;
  const BlockLayout& layout_;
  const DifferentialConfig& config_;
  Scratch& s_;
  DifferentialReport& report_;

  Input input_ = Input::gaussian;
  int block_ = 0;  // of this input
  std::uint64_t draws_ = 0;
};

}  // namespace
}  // namespace differential

Status run_differential(KvBackend& candidate, const DifferentialConfig& config,
                        DifferentialReport& report) {
  report = {};
  const Expected<BlockLayout> layout = BlockLayout::make(config.shape, config.scheme);
  if (!layout.ok()) return layout.status();
  if (config.blocks_per_input < 1) {
    return Status::fail(Code::invalid_argument, "blocks_per_input: expected at least 1, found %d",
                        config.blocks_per_input);
  }
  differential::Scratch scratch;
  const auto row = static_cast<std::size_t>(config.shape.row());
  Status status = scratch.reserve(layout.value(), (kBlockPositions + 1) * row);
  if (!status.ok()) return status;
  differential::Run(candidate, layout.value(), config, scratch, report).all();
  return {};
}

}  // namespace kvquant
