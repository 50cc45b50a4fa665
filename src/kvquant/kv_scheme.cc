#include "kvquant/kv_scheme.h"

namespace kvquant {
namespace {

constexpr int kMaxHeadWidth = 512;
constexpr int kMaxRow = 8192;

bool is_code_width(BitWidth width) {
  return width == BitWidth::int8 || width == BitWidth::int4 || width == BitWidth::int2;
}

Status validate_side(const KvShape& shape, const QuantScheme& scheme, const char* side) {
  if (scheme.bits == BitWidth::bf16) return {};
  if (!is_code_width(scheme.bits)) {
    return Status::fail(Code::invalid_argument, "%s bits: expected 16, 8, 4 or 2, found %d", side,
                        static_cast<int>(scheme.bits));
  }
  if (!is_code_width(scheme.narrowest) || scheme.narrowest > scheme.bits) {
    return Status::fail(Code::invalid_argument,
                        "%s narrowest: expected a code width of at most %d bits, found %d", side,
                        static_cast<int>(scheme.bits), static_cast<int>(scheme.narrowest));
  }
  const bool per_token = scheme.grouping == Grouping::per_token;
  if (!per_token && scheme.grouping != Grouping::per_channel) {
    return Status::fail(Code::invalid_argument,
                        "%s grouping: expected 0 (per token) or 1 (per channel), found %d", side,
                        static_cast<int>(scheme.grouping));
  }
  const int whole = per_token ? shape.row() : kBlockPositions;
  if (scheme.group_size < 1 || whole % scheme.group_size != 0) {
    return Status::fail(
        Code::invalid_argument, "%s group_size: expected a divisor of the %d %s, found %d", side,
        whole, per_token ? "elements of a row" : "positions of a block", scheme.group_size);
  }
  if (scheme.hadamard && (shape.head_width & (shape.head_width - 1)) != 0) {
    return Status::fail(Code::invalid_argument,
                        "%s hadamard: expected a head width that is a power of two, found %d", side,
                        shape.head_width);
  }
  if (scheme.clip_percent < 50 || scheme.clip_percent > 100) {
    return Status::fail(Code::invalid_argument, "%s clip_percent: expected 50 to 100, found %d",
                        side, scheme.clip_percent);
  }
  if (scheme.clip_percent < 100 && scheme.bits == BitWidth::int8) {
    return Status::fail(
        Code::invalid_argument,
        "%s clip_percent: expected 100 for int8 codes, found %d; clipping costs int8 "
        "thirty times its error",
        side, scheme.clip_percent);
  }
  return {};
}

}  // namespace

Status validate(const KvShape& shape) {
  if (shape.kv_heads < 1) {
    return Status::fail(Code::invalid_argument, "kv_heads: expected at least 1, found %d",
                        shape.kv_heads);
  }
  if (shape.head_width < 16 || shape.head_width > kMaxHeadWidth || shape.head_width % 16 != 0) {
    return Status::fail(Code::invalid_argument,
                        "head_width: expected a multiple of 16 from 16 to %d, found %d",
                        kMaxHeadWidth, shape.head_width);
  }
  if (shape.kv_heads > kMaxRow / shape.head_width) {
    return Status::fail(
        Code::invalid_argument,
        "kv_heads: expected at most %d heads of width %d (%d elements a row), found %d",
        kMaxRow / shape.head_width, shape.head_width, kMaxRow, shape.kv_heads);
  }
  return {};
}

Status validate(const KvShape& shape, const KvScheme& scheme) {
  if (Status status = validate(shape); !status.ok()) return status;
  if (Status status = validate_side(shape, scheme.key, "key"); !status.ok()) return status;
  return validate_side(shape, scheme.value, "value");
}

const char* name_of(BitWidth width) {
  switch (width) {
    case BitWidth::int2:
      return "int2";
    case BitWidth::int4:
      return "int4";
    case BitWidth::int8:
      return "int8";
    case BitWidth::bf16:
      return "bf16";
  }
  return "unknown width";
}

const char* name_of(Side side) { return side == Side::key ? "key" : "value"; }

}  // namespace kvquant
