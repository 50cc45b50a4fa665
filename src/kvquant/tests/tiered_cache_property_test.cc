// What a read returns depends on the rows, the scheme, the policy and two positions alone: whatever
// was appended in which pieces, truncated, demoted or stored on the way.
#include <gmock/gmock.h>

#include <utility>

#include "support/cache_probe.h"
#include "support/no_backend.h"
#include "support/property.h"

namespace kvquant {
namespace {

using namespace test;

RefCache make_cache(const CacheConfig& config) {
  Expected<RefCache> cache = RefCache::create({}, config);
  if (!cache.ok()) RC_FAIL(cache.status().message());
  return std::move(cache.value());
}

Status append_rows(RefCache& cache, const Rows& rows, int first, int count) {
  const auto row = static_cast<std::size_t>(cache.layout().shape().row());
  const std::size_t from = static_cast<std::size_t>(first) * row;
  const std::size_t elements = static_cast<std::size_t>(count) * row;
  return cache.append(std::span(rows.k).subspan(from, elements),
                      std::span(rows.v).subspan(from, elements));
}

void must(const Status& status) {
  if (!status.ok()) RC_FAIL(status.message());
}

// Up to eight blocks, as a rule no more than four.
int any_length() {
  const int most = kMostPositions / *rc::gen::element(2, 2, 2, 1);
  return *rc::gen::inRange(0, most + 1);
}
std::uint64_t any_seed() { return *rc::gen::inRange<std::uint64_t>(0, 10000); }

// A way to split `length` positions, over and over the same piece sizes.
std::vector<int> any_pieces() {
  return *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 100)));
}

template <class Visit>
void in_pieces(int length, const std::vector<int>& pieces, const Visit& visit) {
  std::size_t piece = 0;
  for (int at = 0; at < length;) {
    const int count = std::min(pieces[piece++ % pieces.size()], length - at);
    visit(at, count);
    at += count;
  }
}

TEST(TieredCacheProperty, OneByOneEqualsInBulkEqualsInPieces) {
  property([] {
    const CacheConfig config = *any_config();
    const int length = any_length();
    const Rows rows = rows_of(config.shape, any_seed(), 0, length);
    RefCache bulk = make_cache(config);
    must(append_rows(bulk, rows, 0, length));
    RefCache single = make_cache(config);
    in_pieces(length, {1}, [&](int at, int count) { must(append_rows(single, rows, at, count)); });
    RefCache pieces = make_cache(config);
    in_pieces(length, any_pieces(),
              [&](int at, int count) { must(append_rows(pieces, rows, at, count)); });
    RC_ASSERT(held_by(single) == held_by(bulk));
    RC_ASSERT(held_by(pieces) == held_by(bulk));
    RC_ASSERT(same_memory(single.memory(), bulk.memory()));
    RC_ASSERT(same_memory(pieces.memory(), bulk.memory()));
    const std::vector<float> expected = all_reads(bulk);
    RC_ASSERT(same_floats(all_reads(single), expected));
    RC_ASSERT(same_floats(all_reads(pieces), expected));
  });
}

TEST(TieredCacheProperty, TruncateThenAppendEqualsNeverHavingAppended) {
  property([] {
    const CacheConfig config = *any_config();
    const std::uint64_t seed = any_seed();
    const int length = any_length();
    const int kept = *rc::gen::inRange(0, length + 1);
    const int demoted_at = *rc::gen::inRange(0, length + 1);
    const int length_after = std::max(kept, any_length());

    RefCache cache = make_cache(config);
    must(append_rows(cache, rows_of(config.shape, seed, 0, length), 0, length));
    must(cache.demote(demoted_at));
    const int cut_block = kept / kBlockPositions;
    if (kept % kBlockPositions != 0 &&
        !(cache.block(cut_block).present(Side::key).has(Plane::bf16) &&
          cache.block(cut_block).present(Side::value).has(Plane::bf16))) {
      const Held before = held_by(cache);
      RC_ASSERT(cache.truncate(kept).code() == Code::unavailable);
      RC_ASSERT(held_by(cache) == before);
      return;
    }
    must(cache.truncate(kept));
    const Rows more = rows_of(config.shape, seed + 1, kept, length_after - kept);
    must(append_rows(cache, more, 0, length_after - kept));

    RefCache never = make_cache(config);
    must(append_rows(never, rows_of(config.shape, seed, 0, kept), 0, kept));
    must(append_rows(never, more, 0, length_after - kept));

    RC_ASSERT(cache.length() == length_after);
    RC_ASSERT(held_by(cache, cut_block) == held_by(never, cut_block));
    RC_ASSERT(same_reads(cache, never, demoted_at));
    must(cache.demote(demoted_at));
    must(never.demote(demoted_at));
    RC_ASSERT(held_by(cache) == held_by(never));
    RC_ASSERT(same_memory(cache.memory(), never.memory()));
  });
}

TEST(TieredCacheProperty, DemotionEqualsDirectRead) {
  property([] {
    const CacheConfig config = *any_config();
    const int length = any_length();
    const Rows rows = rows_of(config.shape, any_seed(), 0, length);
    const auto ahead = *rc::gen::container<std::vector<int>>(4, rc::gen::inRange(-40, 80));
    RefCache demoted = make_cache(config);
    RefCache whole = make_cache(config);
    std::vector<int> lowest(static_cast<std::size_t>(blocks_of(length)), 0);  // query to come
    int from = 0;
    std::size_t turn = 0;
    in_pieces(length, any_pieces(), [&](int at, int count) {
      must(append_rows(demoted, rows, at, count));
      must(append_rows(whole, rows, at, count));
      // Now and then, at a query a little before or after the end.
      if (const int query = demoted.length() + ahead[turn++ % ahead.size()]; query >= from) {
        must(demoted.demote(query));
        from = query;
        for (int block = 0; block < demoted.length() / kBlockPositions; ++block) {
          lowest[static_cast<std::size_t>(block)] = query;
        }
      }
    });
    RC_ASSERT(same_reads(demoted, whole, from));
    // Whatever queries to come do not need is gone, and no more than that.
    std::size_t held = 0;
    for (int block = 0; block < blocks_of(length); ++block) {
      const KvBlock& found = demoted.block(block);
      for (const Side side : kBothSides) {
        const PlaneSet expected =
            found.complete()
                ? planes_needed(config, side, block, lowest[static_cast<std::size_t>(block)])
                : planes_for(BitWidth::bf16);
        RC_ASSERT(found.present(side) == expected);
        held += demoted.layout().bytes(side, expected);
      }
    }
    RC_ASSERT(demoted.memory().held == held);
    RC_ASSERT(held <= whole.memory().held);
  });
}

// A block that went out of one cache as bytes and into memory of its own.
void through_bytes(const RefCache& cache, int index, OwnedBlock& out) {
  const KvBlock& block = cache.block(index);
  std::vector<std::uint8_t> bytes(
      stored_bytes(cache.layout(), block.present(Side::key), block.present(Side::value)));
  must(store_block(cache.layout(), block, bytes));
  must(load_block(cache.layout(), bytes, out.block()));
}

TEST(TieredCacheProperty, ValuesOfATierAreTheSameWhicheverWayTheBlockCameThere) {
  property([] {
    const CacheConfig config = *any_config();
    const int blocks = 1 + *rc::gen::inRange(0, 4);
    const int length = blocks * kBlockPositions;
    const std::uint64_t seed = any_seed();
    const Rows rows = rows_of(config.shape, seed, 0, length);

    RefCache direct = make_cache(config);
    must(append_rows(direct, rows, 0, length));
    RefCache demoted = make_cache(config);
    must(append_rows(demoted, rows, 0, length));
    RefCache cut = make_cache(config);
    must(append_rows(cut, rows, 0, length));
    const int kept = *rc::gen::inRange(0, length);
    must(cut.truncate(kept));
    must(append_rows(cut, rows, kept, length - kept));

    CpuRefBackend backend;
    std::vector<float> expected, found;
    const int index = *rc::gen::inRange(0, blocks);
    const int first = index * kBlockPositions;
    Band band = Band::open;
    for (int query = length; query / kBlockPositions <= last_query_block(config, length);
         query += kBlockPositions) {
      must(demoted.demote(query));
      if (std::exchange(band, config.policy.band(query, first)) == band) continue;
      must(read(direct, query, first, kBlockPositions, expected));
      must(read(demoted, query, first, kBlockPositions, found));
      RC_ASSERT(same_floats(found, expected));
      must(read(cut, query, first, kBlockPositions, found));
      RC_ASSERT(same_floats(found, expected));
      const RefCache& source = *rc::gen::element(false, true) ? direct : demoted;
      const KvBlock& block = source.block(index);
      OwnedBlock loaded(direct.layout(), block.present(Side::key), block.present(Side::value));
      through_bytes(source, index, loaded);
      found.assign(expected.size(), 0.0f);
      const std::span<float> all(found);
      const std::size_t half = expected.size() / 2;
      must(backend.dequantize_for_attention(direct.layout(), loaded.block(),
                                            config.policy.tier(query, first), 0, kBlockPositions,
                                            all.first(half), all.subspan(half)));
      RC_ASSERT(same_floats(found, expected));
    }
  });
}

// --- against a model that keeps floats and quantizes afresh for every read

class Model {
 public:
  Model(const CacheConfig& config, const BlockLayout& layout) : config_(config), layout_(layout) {}

  int length() const { return static_cast<int>(rows_.k.size()) / config_.shape.row(); }

  void append(const Rows& rows) {
    rows_.k.insert(rows_.k.end(), rows.k.begin(), rows.k.end());
    rows_.v.insert(rows_.v.end(), rows.v.begin(), rows.v.end());
    lowest_.resize(static_cast<std::size_t>(length() / kBlockPositions), 0);
  }
  // Whether a block still has its rows; a block that has not can only be kept or dropped whole.
  bool can_truncate(int length) const {
    const int index = length / kBlockPositions;
    if (length % kBlockPositions == 0 || index >= this->length() / kBlockPositions) return true;
    const int lowest = lowest_[static_cast<std::size_t>(index)];
    return index >= lowest / kBlockPositions ||
           (planes_needed(config_, Side::key, index, lowest).has(Plane::bf16) &&
            planes_needed(config_, Side::value, index, lowest).has(Plane::bf16));
  }
  void truncate(int length) {
    rows_.k.resize(static_cast<std::size_t>(length * config_.shape.row()));
    rows_.v.resize(rows_.k.size());
    lowest_.resize(static_cast<std::size_t>(length / kBlockPositions));
  }
  void demote(int query) {
    for (int& lowest : lowest_) lowest = std::max(lowest, query);
  }

  // False where a block was demoted beyond what the query reads, or is open.
  bool can_read(int query, int first, int count) const {
    for (int index = first / kBlockPositions; index * kBlockPositions < first + count; ++index) {
      const bool open = query / kBlockPositions == index;
      if (index >= length() / kBlockPositions) {
        if (!open) return false;
        continue;
      }
      const Tier tier = config_.policy.tier(query, index * kBlockPositions);
      for (const Side side : kBothSides) {
        const int lowest = lowest_[static_cast<std::size_t>(index)];
        if (!planes_needed(config_, side, index, lowest).contains(planes_for(tier.side(side)))) {
          return false;
        }
      }
    }
    return true;
  }
  std::vector<float> read(int query, int first, int count) const {
    const int row = config_.shape.row();
    const auto elements = static_cast<std::size_t>(count * row);
    std::vector<float> out(2 * elements);
    CpuRefBackend backend;
    for (int at = first; at < first + count;) {
      const int start = at / kBlockPositions * kBlockPositions;
      const int positions = std::min(kBlockPositions, length() - start);
      const int rows = std::min(first + count, start + kBlockPositions) - at;
      OwnedBlock fresh(layout_);
      const auto from = static_cast<std::size_t>(start * row);
      const auto size = static_cast<std::size_t>(positions * row);
      must(backend.quantize_append(layout_, std::span(rows_.k).subspan(from, size),
                                   std::span(rows_.v).subspan(from, size), fresh.block()));
      const std::span<float> all(out);
      const auto to = static_cast<std::size_t>((at - first) * row);
      const auto taken = static_cast<std::size_t>(rows * row);
      must(backend.dequantize_for_attention(layout_, fresh.block(), config_.policy.tier(query, at),
                                            at - start, rows, all.subspan(to, taken),
                                            all.subspan(elements + to, taken)));
      at += rows;
    }
    return out;
  }

 private:
  CacheConfig config_;
  BlockLayout layout_;
  Rows rows_;
  std::vector<int> lowest_;  // per complete block: the earliest query that may come
};

enum class Act { append, read, truncate, demote, bad };

// Numbers that mean something once the state is known.
struct Step {
  Act act = Act::append;
  int a = 0, b = 0, c = 0;
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
  constexpr const char* kNames[] = {"append", "read", "truncate", "demote", "bad"};
  return out << kNames[static_cast<int>(step.act)] << '(' << step.a << ", " << step.b << ", "
             << step.c << ')';
}

rc::Gen<Step> any_step() {
  return rc::gen::exec([] {
    Step step;
    step.act = *rc::gen::element(Act::append, Act::append, Act::append, Act::read, Act::read,
                                 Act::truncate, Act::demote, Act::bad);
    step.a = *rc::gen::inRange(0, 1000);
    step.b = *rc::gen::inRange(0, 1000);
    step.c = *rc::gen::inRange(0, 1000);
    return step;
  });
}

// A cache and its model, moved by the same steps.
class Pair {
 public:
  explicit Pair(const CacheConfig& config)
      : cache_(make_cache(config)), model_(config, cache_.layout()) {}

  void take(const Step& step) {
    const int length = model_.length();
    switch (step.act) {
      case Act::append:
        return append(step.a % 90, static_cast<std::uint64_t>(step.b));
      case Act::read: {
        const int first = length == 0 ? 0 : step.a % length;
        const int count = length == 0 ? 0 : 1 + step.b % std::min(80, length - first);
        return read(std::max(0, first + count - 1) + step.c % 200, first, count);
      }
      case Act::truncate:
        // As a rule not far.
        return truncate(step.b % 4 == 0 ? step.a % (length + 1)
                                        : std::max(0, length - step.a % 50));
      case Act::demote:
        return demote(std::max(0, length - 60 + step.a % 100));
      case Act::bad:
        return bad(step);
    }
  }

  void check_all() {
    RC_ASSERT(cache_.length() == model_.length());
    for (int index = 0; index < blocks_of(model_.length()); ++index) {
      const int first = index * kBlockPositions;
      const int count = std::min(kBlockPositions, model_.length() - first);
      read(std::max(model_.length(), first + count - 1), first, count);
    }
  }

 private:
  void append(int count, std::uint64_t seed) {
    const int length = model_.length();
    const Rows rows = rows_of(cache_.config().shape, seed, length, count);
    RC_LOG() << "append " << count << " rows of seed " << seed << " to " << length << '\n';
    if (count > cache_.config().max_positions - length) {
      refused(Code::invalid_argument, [&] { return cache_.append(rows.k, rows.v); });
      return;
    }
    must(cache_.append(rows.k, rows.v));
    model_.append(rows);
    RC_ASSERT(cache_.length() == model_.length());
  }

  void read(int query, int first, int count) {
    RC_LOG() << "query " << query << " reads " << count << " from " << first << '\n';
    if (!model_.can_read(query, first, count)) {
      std::vector<float> out;
      refused(Code::unavailable, [&] { return test::read(cache_, query, first, count, out); });
      for (const float value : out) RC_ASSERT(value == 0.0f);  // nothing was written
      return;
    }
    std::vector<float> found;
    must(test::read(cache_, query, first, count, found));
    RC_ASSERT(same_floats(found, model_.read(query, first, count)));
  }

  void truncate(int length) {
    RC_LOG() << "truncate " << model_.length() << " to " << length << '\n';
    if (!model_.can_truncate(length)) {
      refused(Code::unavailable, [&] { return cache_.truncate(length); });
      return;
    }
    must(cache_.truncate(length));
    model_.truncate(length);
  }

  void demote(int query) {
    RC_LOG() << "demote " << query << '\n';
    must(cache_.demote(query));
    model_.demote(query);
  }

  void bad(const Step& step) {
    RC_LOG() << "bad call " << step << '\n';
    const int length = model_.length();
    const int row = cache_.config().shape.row();
    const int room = cache_.config().max_positions - length;
    Rows rows = rows_of(cache_.config().shape, 0, length, std::min(room, 1 + step.b % 80));
    std::vector<float> k(static_cast<std::size_t>(row)), v(k);
    const AttentionInput one_row{k, v};
    constexpr float kRefused[] = {NAN, INFINITY, -INFINITY, 3.4e38f};
    switch (step.a % 12) {
      case 0:  // sides of different sizes
        rows.v.resize(rows.v.size() + static_cast<std::size_t>(row));
        return refused(Code::invalid_argument, [&] { return cache_.append(rows.k, rows.v); });
      case 1:  // part of a row
        rows.k.push_back(0.0f);
        rows.v.push_back(0.0f);
        return refused(Code::invalid_argument, [&] { return cache_.append(rows.k, rows.v); });
      case 2:  // a value that cannot be stored, anywhere
      case 3: {
        std::vector<float>& side = step.c % 2 == 0 ? rows.k : rows.v;
        if (side.empty()) return;
        side[static_cast<std::size_t>(step.c * 37) % side.size()] = kRefused[step.b % 4];
        return refused(Code::not_finite, [&] { return cache_.append(rows.k, rows.v); });
      }
      case 4:  // more than fit
        rows = rows_of(cache_.config().shape, 0, length, room + 1);
        return refused(Code::invalid_argument, [&] { return cache_.append(rows.k, rows.v); });
      case 5:
        return refused(Code::invalid_argument, [&] { return cache_.truncate(length + 1); });
      case 6:
        return refused(Code::invalid_argument, [&] { return cache_.truncate(-1 - step.b); });
      case 7:
        return refused(Code::invalid_argument, [&] { return cache_.demote(-1 - step.b); });
      case 8:  // past the end
        return refused(Code::invalid_argument,
                       [&] { return cache_.dequantize(9999, length, 1, one_row); });
      case 9:
        return refused(Code::invalid_argument,
                       [&] { return cache_.dequantize(9999, -1, 1, one_row); });
      case 10:  // a query before what it reads
        if (length == 0) return;
        return refused(Code::invalid_argument,
                       [&] { return cache_.dequantize(length - 2, length - 1, 1, one_row); });
      default:  // wrong room
        return refused(Code::invalid_argument,
                       [&] { return cache_.dequantize(length, 0, 0, one_row); });
    }
  }

  // The call fails with this code and a sentence, and nothing has changed.
  template <class Call>
  void refused(Code code, const Call& call) {
    const Held before = held_by(cache_);
    const MemoryReport memory = cache_.memory();
    const Status status = call();
    RC_ASSERT(status.code() == code);
    RC_ASSERT(status.message()[0] != '\0');
    RC_ASSERT(held_by(cache_) == before);
    RC_ASSERT(same_memory(cache_.memory(), memory));
  }

  RefCache cache_;
  Model model_;
};

TEST(TieredCacheProperty, EqualsAModelThatQuantizesAfresh) {
  property([] {
    CacheConfig config = *any_config();
    config.max_positions = 1 + *rc::gen::inRange(0, kMostPositions);
    Pair pair(config);
    const auto steps = *rc::gen::container<std::vector<Step>>(any_step());
    for (std::size_t i = 0; i < steps.size() && i < 12; ++i) pair.take(steps[i]);
    pair.check_all();
  });
}

TEST(TieredCacheProperty, MemorySetAsideForAPromiseNeverRunsOut) {
  property([] {
    CacheConfig config = *any_config();
    config.max_positions = 1 + *rc::gen::inRange(0, 2000);
    config.undemoted_positions = 1 + *rc::gen::inRange(0, 150);
    Expected<TieredKvCache<NoBackend>> made = TieredKvCache<NoBackend>::create({}, config);
    must(made.status());
    TieredKvCache<NoBackend>& cache = made.value();
    RC_ASSERT(cache.memory().reserved == cache.bytes_needed(config).value());
    const auto turns = *rc::gen::container<std::vector<std::pair<int, int>>>(
        rc::gen::pair(rc::gen::inRange(0, 100), rc::gen::inRange(0, 97)));
    const auto row = static_cast<std::size_t>(config.shape.row());
    const std::vector<float> rows(row * 151);
    const auto append = [&](int count) {
      const std::span<const float> some(rows.data(), row * static_cast<std::size_t>(count));
      must(cache.append(some, some));
    };
    // To the end in steps of what was promised, with every turn a detour: some rows, back, and then
    // the rest of the promise.
    std::size_t turn = 0;
    while (cache.length() < config.max_positions) {
      int left = std::min(config.undemoted_positions, config.max_positions - cache.length());
      if (turn < turns.size()) {
        const auto [rows_first, rows_back] = turns[turn++];
        const int some = std::min(rows_first, left);
        append(some);
        left -= some;
        const Status status = cache.truncate(std::max(0, cache.length() - rows_back));
        RC_ASSERT(status.ok() || status.code() == Code::unavailable);
      }
      append(left);
      RC_ASSERT(cache.memory().held <= cache.memory().reserved);
      must(cache.demote(cache.length()));
    }
  });
}

}  // namespace
}  // namespace kvquant
