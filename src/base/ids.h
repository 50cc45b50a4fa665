// The numbers every layer shares: token, sequence and block. Apart from types.h because nvcc, which
// compiles the kernels of the CUDA backend, cannot read the formatting library that errors need.
#pragma once

#include <cstdint>

namespace kipp {

using Token =
    std::int32_t;  // an id of the Qwen vocabulary, 0 .. kNamedTokens - 1 where it names a token
using SeqId = std::int32_t;    // one sequence known to a backend
using BlockId = std::int32_t;  // one physical block of the KV cache

// Parts of a block's keys and values that can be in memory or not, one bit each. Without tiers a
// block has one part; what the bits of a tiered one stand for, backend/kv_policy.h says.
using PlaneBits = std::uint16_t;
inline constexpr int kMaxPlanes = 16;

// The parts that a block has from now on; the memory of others is given back.
struct PlaneChange {
  BlockId block = 0;
  PlaneBits planes = 0;
};

// The contents of one block to be made those of another.
struct BlockCopy {
  BlockId from = 0;
  BlockId to = 0;
};

// Positions per KV block. Block tables, prefix sharing and tier boundaries all count in it.
inline constexpr int kBlockPositions = 32;

// Blocks that cover positions [0, positions).
constexpr int blocks_for(int positions) {
  return positions / kBlockPositions + (positions % kBlockPositions != 0 ? 1 : 0);
}

}  // namespace kipp
