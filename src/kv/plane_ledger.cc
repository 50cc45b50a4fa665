#include "kv/plane_ledger.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace kipp {
namespace {

constexpr PlaneBits bit(int plane) { return static_cast<PlaneBits>(1u << plane); }
constexpr PlaneBits both(PlaneBits a, PlaneBits b) { return static_cast<PlaneBits>(a | b); }
constexpr PlaneBits without(PlaneBits a, PlaneBits b) { return static_cast<PlaneBits>(a & ~b); }

template <class Visit>
void for_each_plane(PlaneBits planes, Visit&& visit) {
  for (unsigned left = planes; left != 0; left &= left - 1) visit(std::countr_zero(left));
}

}  // namespace

PlaneBits PlanePlan::at_distance(int distance) const {
  PlaneBits planes = far;
  if (mid_blocks > 0 && distance <= recent_blocks + mid_blocks) planes = both(planes, mid);
  if (distance <= recent_blocks) planes = both(planes, recent);
  return planes;
}

PlaneBits PlanePlan::cached() const {
  return both(at_distance(1), sink_blocks > 0 ? sink : PlaneBits{0});
}

PlaneBits PlanePlan::needed(int query_block, int block) const {
  assert(block < query_block);
  return block < sink_blocks ? sink : at_distance(query_block - block);
}

int PlanePlan::units_of(PlaneBits planes) const {
  int sum = 0;
  for_each_plane(planes, [&](int plane) { sum += units[static_cast<std::size_t>(plane)]; });
  return sum;
}

int PlanePlan::quota(int blocks) const {
  const int beyond_sinks = sink_blocks > 0 ? units_of(without(open, sink)) : 0;
  const int open_units = std::max(units_of(without(open, far)), beyond_sinks);
  const int window = std::max(std::min(recent_blocks + mid_blocks, blocks - 1), 0);
  const int near = std::min(recent_blocks, window);
  std::int64_t sum = std::int64_t{near} * extra_units(1);
  if (window > near) sum += std::int64_t{window - near} * extra_units(recent_blocks + 1);
  if (blocks > 0) sum += extra_units(1);
  sum += std::int64_t{std::min(2, blocks)} * open_units;
  sum += std::int64_t{std::min(sink_blocks, blocks)} * std::max(units_of(sink) - base_units(), 0);
  // More than anybody has is refused like so much.
  return static_cast<int>(std::min<std::int64_t>(sum, std::numeric_limits<int>::max()));
}

PlaneLedger::PlaneLedger(const PlanePlan& plan, int blocks, bool records)
    : plan_(plan),
      records_(records),
      blocks_(static_cast<std::size_t>(blocks)),
      counts_(blocks_.size() * kMaxPlanes, 0),
      links_(blocks_.size() * kMaxPlanes) {
  assert(plan.units_of(plan.far) > 0 && plan.sink_blocks >= 0 && plan.recent_blocks >= 0 &&
         plan.mid_blocks >= 0 && plan.step_blocks >= 0);
}

void PlaneLedger::set_base(BlockId block, PlaneBits base) {
  assert(at(block).held == 0);
  at(block).base = base;
}

void PlaneLedger::add(BlockId block, PlaneBits planes) {
  assert((at(block).held & planes) == 0);
  set_held(block, both(at(block).held, planes));
  for_each_plane(without(planes, at(block).base), [&](int plane) { make_idle(block, plane); });
  record(block);
}

void PlaneLedger::pin(BlockId block, PlaneBits planes) {
  assert(without(planes, at(block).held) == 0);
  for_each_plane(without(planes, at(block).base), [&](int plane) {
    if (counts_[node(block, plane)]++ == 0) make_busy(block, plane);
  });
}

void PlaneLedger::unpin(BlockId block, PlaneBits planes) {
  PlaneBits useless = 0;
  for_each_plane(without(planes, at(block).base), [&](int plane) {
    std::int32_t& count = counts_[node(block, plane)];
    assert(count > 0);
    if (--count > 0) return;
    make_idle(block, plane);
    if ((plan_.cached() & bit(plane)) == 0) useless = both(useless, bit(plane));
  });
  if (useless != 0) drop(block, useless);
}

void PlaneLedger::drop(BlockId block, PlaneBits planes) {
  planes = static_cast<PlaneBits>(planes & at(block).held);
  if (planes == 0) return;
  for_each_plane(planes, [&](int plane) {
    assert(counts_[node(block, plane)] == 0);
    if ((at(block).idle & bit(plane)) != 0) make_busy(block, plane);
  });
  set_held(block, without(at(block).held, planes));
  record(block);
}

void PlaneLedger::drop_oldest() {
  assert(oldest_ != kNone);
  drop(oldest_ / kMaxPlanes, bit(oldest_ % kMaxPlanes));
  ++demotions_;
}

void PlaneLedger::move(BlockId from, BlockId to, PlaneBits planes) {
  assert(without(planes, at(from).held) == 0 && (planes & at(to).held) == 0);
  if (planes == 0) return;
  for_each_plane(planes, [&](int plane) {
    assert(counts_[node(from, plane)] == 0);
    if ((at(from).idle & bit(plane)) != 0) make_busy(from, plane);
  });
  set_held(from, without(at(from).held, planes));
  set_held(to, both(at(to).held, planes));
  for_each_plane(without(planes, at(to).base), [&](int plane) { make_idle(to, plane); });
  if (records_) {
    moves_.push_back({.at = changes_.size(), .from = from, .to = to, .planes = planes});
  }
}

void PlaneLedger::set_held(BlockId block, PlaneBits held) {
  Block& b = at(block);
  held_units_ += plan_.units_of(held) - plan_.units_of(b.held);
  for_each_plane(without(held, b.held), [&](int p) { ++holders_[static_cast<std::size_t>(p)]; });
  for_each_plane(without(b.held, held), [&](int p) { --holders_[static_cast<std::size_t>(p)]; });
  b.held = held;
}

void PlaneLedger::record(BlockId block) {
  if (!records_) return;
  // Of a block's changes in a row the last one says it all.
  const bool in_a_row = !changes_.empty() && changes_.back().block == block &&
                        (moves_.empty() || moves_.back().at < changes_.size());
  if (!in_a_row) changes_.push_back({.block = block, .planes = 0});
  changes_.back().planes = at(block).held;
}

// Planes that take no memory are not worth dropping and never idle.
void PlaneLedger::make_idle(BlockId block, int plane) {
  const int units = plan_.units[static_cast<std::size_t>(plane)];
  if (units == 0) return;
  const std::size_t n = node(block, plane);
  const auto id = static_cast<std::int32_t>(n);
  links_[n] = {.older = newest_, .newer = kNone, .since = tick()};
  (newest_ == kNone ? oldest_ : links_[static_cast<std::size_t>(newest_)].newer) = id;
  newest_ = id;
  at(block).idle = both(at(block).idle, bit(plane));
  idle_units_ += units;
}

void PlaneLedger::make_busy(BlockId block, int plane) {
  if ((at(block).idle & bit(plane)) == 0) return;
  const Links l = links_[node(block, plane)];
  (l.older == kNone ? oldest_ : links_[static_cast<std::size_t>(l.older)].newer) = l.newer;
  (l.newer == kNone ? newest_ : links_[static_cast<std::size_t>(l.newer)].older) = l.older;
  at(block).idle = without(at(block).idle, bit(plane));
  idle_units_ -= plan_.units[static_cast<std::size_t>(plane)];
}

Result<void> PlaneLedger::check() const {
  int units = 0;
  int idle_units = 0;
  int idle_planes = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto id = static_cast<BlockId>(i);
    const Block& b = blocks_[i];
    units += plan_.units_of(b.held);
    idle_units += plan_.units_of(b.idle);
    idle_planes += std::popcount(b.idle);
    for (int plane = 0; plane < kMaxPlanes; ++plane) {
      const bool held = (b.held & bit(plane)) != 0;
      const bool base = (b.base & bit(plane)) != 0;
      const bool costs = plan_.units[static_cast<std::size_t>(plane)] > 0;
      const bool idle = (b.idle & bit(plane)) != 0;
      const std::int32_t n = readers(id, plane);
      if (n < 0 || (n > 0 && (!held || base)) || idle != (held && !base && costs && n == 0)) {
        return fail(ErrorCode::invalid,
                    "plane ledger: plane {} of block {} is {}held, {}of its base, {}idle and has "
                    "{} readers",
                    plane, id, held ? "" : "not ", base ? "" : "not ", idle ? "" : "not ", n);
      }
      if (idle && (plan_.cached() & bit(plane)) == 0) {
        return fail(ErrorCode::invalid,
                    "plane ledger: block {} keeps plane {}, which nobody could read", id, plane);
      }
    }
  }
  int listed = 0;
  std::int32_t before = kNone;
  for (std::int32_t n = oldest_; n != kNone && listed <= idle_planes; ++listed) {
    const Links l = links_[static_cast<std::size_t>(n)];
    if (l.older != before || (at(n / kMaxPlanes).idle & bit(n % kMaxPlanes)) == 0) {
      return fail(ErrorCode::invalid, "plane ledger: plane {} of block {} is wrongly in the list",
                  n % kMaxPlanes, n / kMaxPlanes);
    }
    before = n;
    n = l.newer;
  }
  if (listed != idle_planes || before != newest_ || idle_units != idle_units_) {
    return fail(ErrorCode::invalid,
                "plane ledger: {} planes of {} units are idle; {} are in the list, {} are counted",
                idle_planes, idle_units, listed, idle_units_);
  }
  if (units != held_units_ || free_units() < 0) {
    return fail(ErrorCode::invalid,
                "plane ledger: blocks hold {} units, {} are counted, there are {}", units,
                held_units_, plan_.total_units);
  }
  return {};
}

}  // namespace kipp
