#include "kvquant/plane_arena.h"

#include <cstring>
#include <new>

namespace kvquant {
namespace {

constexpr std::align_val_t kAlignment{64};

constexpr Side kBothSides[] = {Side::key, Side::value};
constexpr Plane kEveryPlane[] = {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16};

std::size_t count_of(const PlaneArena::Counts& counts, Side side, Plane plane) {
  return static_cast<std::size_t>(counts.planes[static_cast<int>(side)][static_cast<int>(plane)]);
}

}  // namespace

void PlaneArena::FreeAligned::operator()(std::uint8_t* memory) const {
  ::operator delete[](memory, kAlignment);
}

std::size_t PlaneArena::bytes_needed(const BlockLayout& layout, const Counts& counts) {
  std::size_t bytes = 0;
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      bytes += layout.plane(side, plane).bytes * count_of(counts, side, plane);
    }
  }
  return bytes;
}

Status PlaneArena::reserve(const BlockLayout& layout, const Counts& counts) {
  const std::size_t bytes = bytes_needed(layout, counts);
  memory_.reset(static_cast<std::uint8_t*>(::operator new[](bytes, kAlignment, std::nothrow)));
  if (memory_ == nullptr) {
    return Status::fail(Code::out_of_memory, "cache: the system has no %zu bytes for its planes",
                        bytes);
  }
  bytes_ = bytes;
  std::uint8_t* at = memory_.get();
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      Pool& to = pool(side, plane);
      to = {};
      to.plane_bytes = layout.plane(side, plane).bytes;
      if (to.plane_bytes == 0) continue;
      to.next = at;
      to.untouched = counts.planes[static_cast<int>(side)][static_cast<int>(plane)];
      at += to.plane_bytes * count_of(counts, side, plane);
    }
  }
  return {};
}

std::uint8_t* PlaneArena::take(Side side, Plane plane) {
  Pool& from = pool(side, plane);
  if (std::uint8_t* memory = from.first; memory != nullptr) {
    std::memcpy(&from.first, memory, sizeof from.first);
    --from.given_back;
    return memory;
  }
  if (from.untouched == 0) return nullptr;
  --from.untouched;
  std::uint8_t* memory = from.next;
  from.next += from.plane_bytes;
  return memory;
}

void PlaneArena::give_back(Side side, Plane plane, std::uint8_t* memory) {
  Pool& to = pool(side, plane);
  std::memcpy(memory, &to.first, sizeof to.first);
  to.first = memory;
  ++to.given_back;
}

}  // namespace kvquant
