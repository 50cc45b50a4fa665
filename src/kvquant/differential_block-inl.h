// What the differential harness appends to and compares: internal to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kvquant/differential.h"

namespace kvquant::differential {

// A block, its planes, and room behind each of them that nobody may write to.
class TestBlock {
 public:
  Status reserve(const BlockLayout& layout);

  void reset(PlaneSet key, PlaneSet value);  // empty; every byte as if nobody had written yet
  // The other planes are not there any more; their bytes stay, to be compared all the same.
  void keep(PlaneSet key, PlaneSet value);
  void copy_from(const TestBlock& other);  // bytes and positions
  bool same_as(const TestBlock& other) const;

  const std::uint8_t* plane(Side side, Plane plane) const {
    return memory_.get() + at_[static_cast<int>(side)][static_cast<int>(plane)];
  }
  static std::size_t room_behind(const PlaneLayout& plane);

  KvBlock block;

 private:
  struct FreeAligned {
    void operator()(std::uint8_t* memory) const;
  };

  std::unique_ptr<std::uint8_t[], FreeAligned> memory_;
  std::size_t size_ = 0;
  std::size_t at_[kSides][kPlanes] = {};
};

// One thing that differs, where, and how.
struct Finding {
  Disagreement kind = Disagreement::none;
  const char* part = "";  // what differs
  const char* when = "";  // with a blank before it
  Side side = Side::key;
  BitWidth width = BitWidth::bf16;
  int position = 0, head = 0, channel = 0;
  double expected = 0, found = 0;
  bool error_codes = false;  // what the two above are
  double difference = 0;
};

double apart(double a, double b);  // infinite where either is no number

// The stored difference of two blocks to report; false where they hold the same bytes and
// positions.
bool find_stored_difference(const BlockLayout& layout, const TestBlock& expected,
                            const TestBlock& found, Finding& finding);

}  // namespace kvquant::differential
