"""KvBlock version 1 in numpy, written from src/kvquant/FORMAT.md alone: a second implementation that shares no code
with the library, so that each can catch the other departing from the page. It makes the golden files
(tools/kvquant_golden.py). Whole arrays at a time, [position][head][channel] throughout; speed is not its point.
"""

import struct
import zlib
from dataclasses import dataclass, field

import numpy as np

POSITIONS = 32
HEADER = struct.Struct("<4sHHII HHB3x 8s8s 24x")
RECORD = struct.Struct("<BBBBHBB")
PLANES = ("hi2", "mid2", "low4", "bf16")
CODE_BITS = {"hi2": 2, "mid2": 2, "low4": 4}
WIDTHS = (2, 4, 8, 16)

f32 = np.float32


class FormatError(ValueError):
    """Bytes that are no block of version 1, or rows that cannot be stored."""


@dataclass(frozen=True)
class Side:
    bits: int = 8
    per_channel: bool = False
    group: int = 128
    symmetric: bool = False
    hadamard: bool = False
    narrowest: int = 2
    clip: int = 100

    @property
    def coded(self):
        return self.bits != 16

    @property
    def fitted(self):
        return self.bits in (4, 8) and self.narrowest == 2

    @property
    def range_plane(self):
        return "hi2" if self.bits == 2 else "mid2"

    @property
    def planes(self):
        codes = {16: 0, 2: 1, 4: 2, 8: 3}[self.bits]
        return PLANES[:codes] + ("bf16",)

    @property
    def readable(self):
        """Widths it can be read at, planes permitting."""
        return tuple(w for w in WIDTHS if w == 16 or (self.coded and self.narrowest <= w <= self.bits))


def planes_read(width):
    return {2: ("hi2",), 4: ("hi2", "mid2"), 8: ("hi2", "mid2", "low4"), 16: ("bf16",)}[width]


@dataclass
class Block:
    heads: int
    width: int
    positions: int
    sides: tuple  # of Side: key, value
    planes: tuple = field(default_factory=lambda: ({}, {}))  # of {name: Plane}


@dataclass
class Plane:
    """What one plane holds. rows: BF16 patterns or codes, [32][head][channel]; the pair as FP16 patterns by group."""

    rows: np.ndarray
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None


# --- groups: arrays of [group][member], where group is the index of FORMAT.md


def to_groups(side, rows):
    positions, heads, width = rows.shape
    if side.per_channel:
        spans = rows.reshape(positions // side.group, side.group, heads, width)
        return spans.transpose(2, 0, 3, 1).reshape(-1, side.group)
    if width % side.group == 0:
        return rows.transpose(1, 0, 2).reshape(-1, side.group)
    return rows.reshape(-1, side.group)


def from_groups(side, groups, heads, width):
    if side.per_channel:
        spans = groups.reshape(heads, POSITIONS // side.group, width, side.group)
        return spans.transpose(1, 3, 0, 2).reshape(POSITIONS, heads, width)
    if width % side.group == 0:
        return groups.reshape(heads, POSITIONS, width).transpose(1, 0, 2)
    return groups.reshape(POSITIONS, heads, width)


# --- number formats


def round_bf16(x):
    """Patterns of binary32 values rounded to nearest even; finite input."""
    bits = np.asarray(x, f32).view(np.uint32).astype(np.uint64)
    below, kept = bits & 0xFFFF, bits >> 16
    up = (below > 0x8000) | ((below == 0x8000) & (kept & 1 == 1))
    return (kept + up).astype(np.uint16)


def bf16_value(patterns):
    return (patterns.astype(np.uint32) << 16).view(f32)


def fp16_down(x):
    nearest = x.astype(np.float16)
    with np.errstate(over="ignore"):  # of neighbours that are not taken
        below = np.nextafter(nearest, np.float16(-np.inf))
    return np.where(nearest.astype(f32) > x, below, nearest) + np.float16(0)  # a zero without its sign


def fp16_up(x):
    return -fp16_down(-x) + np.float16(0)


# --- rotation


def rotate(x):
    width = x.shape[-1]
    x = x.copy()
    half = 1
    while half < width:
        pairs = x.reshape(-1, width // (2 * half), 2, half)
        low, high = pairs[:, :, 0].copy(), pairs[:, :, 1].copy()
        pairs[:, :, 0], pairs[:, :, 1] = low + high, low - high
        half *= 2
    power = width.bit_length() - 1
    t = f32(2.0 ** -(power // 2))
    if power % 2 == 1:
        t *= np.array(0x3F3504F3, np.uint32).view(f32)
    return x * t


# --- codes and parameters of groups [group][member]


def fit_range(side, x):
    a, b = x.min(axis=1), x.max(axis=1)
    if side.symmetric:
        n = 2 ** (side.bits - 1) - 1
        scale = fp16_up(np.maximum(-a, b) * (f32(side.clip) / f32(100)) / f32(n))
        return scale, np.zeros_like(scale)
    if side.clip < 100:
        cut = bf16_value(round_bf16((b - a) * (f32(100 - side.clip) / f32(200))))
        a, b = a + cut, b - cut
    offset = fp16_down(a)
    return fp16_up((b - offset.astype(f32)) / f32(2**side.bits - 1)), offset


def make_codes(side, x, scale, offset):
    scale, offset = scale.astype(f32)[:, None], offset.astype(f32)[:, None]
    inverse = np.where(scale > 0, f32(1) / np.where(scale > 0, scale, f32(1)), f32(0))
    steps = (x - offset) * inverse
    if side.symmetric:
        n = 2 ** (side.bits - 1) - 1
        return np.rint(np.clip(steps, f32(-n), f32(n))).astype(np.int64) + n + 1
    return np.rint(np.clip(steps, f32(0), f32(2**side.bits - 1))).astype(np.int64)


def nearest(x):
    return np.rint(x).astype(np.int64)


def toward_zero(numerator, denominator):
    return np.sign(numerator) * (np.abs(numerator) // denominator)


def fit_pair(side, codes, scale16, offset16):
    """The fitted int2 pair."""
    cell = 2 ** (side.bits - 2)
    h = codes // cell
    k = codes - (2 ** (side.bits - 1) if side.symmetric else 0)
    count = codes.shape[1]
    H, HH, K, HK = h.sum(1), (h * h).sum(1), k.sum(1), (h * k).sum(1)
    scale, offset = scale16.astype(f32), offset16.astype(f32)
    if side.symmetric:
        top, bottom = 3 * (2 * HK - 3 * K), 4 * HH - 12 * H + 9 * count
        m = np.clip(nearest(top.astype(f32) / bottom.astype(f32) * f32(16)), 16 * cell - 8, 32 * cell - 8)
        return (scale * m.astype(f32) / f32(24)).astype(np.float16), np.zeros_like(scale16)

    half = f32((cell - 1) / 2)
    bottom = count * HH - H * H
    one = bottom == 0
    mean = nearest(((K - cell * H).astype(f32) / f32(count) - half) * f32(16))
    t, s = K * HH - H * HK, count * HK - H * K
    below = np.where(one, 1, bottom).astype(f32)
    first = nearest((t.astype(f32) / below - half) * f32(16))
    last = nearest(((t + 3 * s).astype(f32) / below - half - f32(3 * cell)) * f32(16))
    size = np.maximum(np.abs(first), np.abs(last))
    far = size > 8 * cell
    size = np.where(far, size, 1)
    first = np.where(far, toward_zero(first * 8 * cell, size), first)
    last = np.where(far, toward_zero(last * 8 * cell, size), last)
    first, last = np.where(one, mean, first), np.where(one, mean, last)

    target = np.maximum(offset + scale * (half + first.astype(f32) / f32(16)), f32(-65504))
    outer = scale * (half + (48 * cell + last).astype(f32) / f32(16))
    offset2 = target.astype(np.float16)
    moved = offset2.astype(f32) - offset
    offset2 = np.where(moved > scale * f32(cell - 0.5), fp16_down(target), offset2)
    offset2 = np.where(moved < -scale / f32(2), offset16, offset2)
    return ((outer - (offset2.astype(f32) - offset)) / f32(3)).astype(np.float16), offset2


def largest_value(side, width):
    if not side.coded:
        return bf16_value(np.array([0x7F7F], np.uint16))[0]
    return f32(65280) / np.sqrt(f32(width)) if side.hadamard else f32(65280)


def code_rows(side, patterns):
    """BF16 patterns [32][head][channel] -> the code planes."""
    _, heads, width = patterns.shape
    x = bf16_value(patterns)
    if side.hadamard:
        x = rotate(x)
    x = to_groups(side, np.where(np.abs(x) < f32(2.0**-40), f32(0), x))
    scale, offset = fit_range(side, x)
    codes = make_codes(side, x, scale, offset)
    laid = from_groups(side, codes, heads, width)
    planes = {"hi2": Plane(laid >> (side.bits - 2))}
    if side.bits >= 4:
        planes["mid2"] = Plane(laid >> (side.bits - 4) & 3)
    if side.bits == 8:
        planes["low4"] = Plane(laid & 15)
    pairs = {side.range_plane: (scale, offset)}
    if side.fitted:
        pairs["hi2"] = fit_pair(side, codes, scale, offset)
    for name, (scale16, offset16) in pairs.items():
        planes[name].scale = scale16.view(np.uint16)
        planes[name].offset = None if side.symmetric else offset16.view(np.uint16)
    return planes


def make_block(sides, keys, values, key_planes, value_planes):
    """FP32 rows [position][head][channel] -> a Block with the planes that are named."""
    positions, heads, width = keys.shape
    block = Block(heads, width, positions, tuple(sides))
    for side, rows, names, planes in zip(sides, (keys, values), (key_planes, value_planes), block.planes, strict=True):
        if not np.all(np.abs(rows) <= largest_value(side, width)):  # not for NaN
            raise FormatError("rows: an element is not finite or too large to be stored")
        patterns = np.zeros((POSITIONS, heads, width), np.uint16)
        patterns[:positions] = round_bf16(rows)
        made = {"bf16": Plane(patterns)}
        if side.coded and positions == POSITIONS:
            made |= code_rows(side, patterns)
        planes.update({name: made[name] for name in PLANES if name in names})
    return block


# --- bytes


def pack(plane_name, rows):
    rows = rows.transpose(1, 0, 2)  # [head][position][channel]
    if plane_name == "bf16":
        return rows.astype("<u2").tobytes()
    bits = CODE_BITS[plane_name]
    parts = np.split(rows.astype(np.uint8), 8 // bits, axis=2)
    return sum(part << (bits * i) for i, part in enumerate(parts)).astype(np.uint8).tobytes()


def unpack(plane_name, data, heads, width):
    if plane_name == "bf16":
        rows = np.frombuffer(data, "<u2").reshape(heads, POSITIONS, width)
    else:
        bits = CODE_BITS[plane_name]
        rows = np.frombuffer(data, np.uint8).reshape(heads, POSITIONS, width * bits // 8)
        rows = np.concatenate([rows >> (bits * i) & (2**bits - 1) for i in range(8 // bits)], axis=2)
    return rows.transpose(1, 0, 2)


def padded(count):
    return -(-count // 64) * 64


def part_sizes(side, name, heads, width):
    """Bytes of rows, of parameters as far as they are used, of one parameter part, and how many such parts."""
    rows = POSITIONS * heads * width * (16 if name == "bf16" else CODE_BITS[name]) // 8
    if not side.coded or not (name == side.range_plane or (name == "hi2" and side.fitted)):
        return rows, 0, 0, 0
    used = 2 * (POSITIONS * heads * width // side.group)
    return rows, used, padded(used), 1 if side.symmetric else 2


def plane_bytes(side, name, plane):
    _, heads, width = plane.rows.shape
    data = pack(name, plane.rows)
    for patterns in (plane.scale, plane.offset):
        if patterns is not None:
            part = patterns.astype("<u2").tobytes()
            data += part.ljust(padded(len(part)), b"\0")
    return data


def record(side, planes):
    names = sum(1 << PLANES.index(name) for name in planes)
    if not side.coded:
        return RECORD.pack(16, 0, 0, 0, 0, 0, names)
    flags = side.symmetric + 2 * side.hadamard
    return RECORD.pack(side.bits, side.per_channel, flags, side.narrowest, side.group, side.clip, names)


def checksum(data):
    return zlib.crc32(data[16:], zlib.crc32(bytes(4), zlib.crc32(data[:12])))


def sealed(data):
    """The same bytes under a right checksum."""
    return data[:12] + struct.pack("<I", checksum(data)) + data[16:]


def write(block):
    body = b"".join(
        plane_bytes(side, name, planes[name])
        for side, planes in zip(block.sides, block.planes, strict=True)
        for name in PLANES
        if name in planes
    )
    records = [record(side, planes) for side, planes in zip(block.sides, block.planes, strict=True)]
    size = HEADER.size + len(body)
    header = HEADER.pack(b"KVQB", 1, 64, size, 0, block.heads, block.width, block.positions, *records)
    return sealed(header + body)


def require(holds, sentence):
    if not holds:
        raise FormatError(sentence)


def parse_record(data, heads, width, positions):
    bits, grouping, flags, narrowest, group, clip, names = RECORD.unpack(data)
    require(bits in WIDTHS, f"bits: {bits}")
    if bits == 16:
        require(not any(data[1:7]), "a record of 16 bits with more in it")
        side = Side(16)
    else:
        require(grouping in (0, 1), f"grouping: {grouping}")
        require(flags < 4, f"flags: {flags}")
        require(narrowest in (2, 4, 8) and narrowest <= bits, f"narrowest: {narrowest}")
        whole = POSITIONS if grouping == 1 else heads * width
        require(group > 0 and whole % group == 0, f"group size: {group}")
        require(50 <= clip <= 100 and (clip == 100 or bits != 8), f"clip: {clip}")
        require(not flags & 2 or width & (width - 1) == 0, f"Hadamard over a width of {width}")
        side = Side(bits, grouping == 1, group, bool(flags & 1), bool(flags & 2), narrowest, clip)
    require(names < 16, f"planes: {names}")
    planes = [name for i, name in enumerate(PLANES) if names >> i & 1]
    require(set(planes) <= set(side.planes), f"planes that this side cannot have: {planes}")
    require("low4" not in planes or "mid2" in planes, "low4 without mid2")
    require("mid2" not in planes or "hi2" in planes, "mid2 without hi2")
    require(planes == ["bf16"] if positions < POSITIONS else planes, f"planes of {positions} positions: {planes}")
    return side, planes


def parse_plane(side, name, data, heads, width, positions):
    rows_size, used, part, parts = part_sizes(side, name, heads, width)
    plane = Plane(unpack(name, data[:rows_size], heads, width))
    if name == "bf16":
        require(np.isfinite(bf16_value(plane.rows[:positions])).all(), "a BF16 element is not finite")
        require(not plane.rows[positions:].any(), "rows past the last position")
    at = rows_size
    for index in range(parts):
        patterns = np.frombuffer(data[at : at + used], "<u2")
        require(not any(data[at + used : at + part]), f"padding of {name}")
        require(np.isfinite(patterns.view(np.float16)).all(), f"a parameter of {name} is not finite")
        if index == 0:
            require(not (patterns & 0x8000).any(), f"a scale of {name} is negative")
            plane.scale = patterns
        else:
            plane.offset = patterns
        at += part
    return plane


def parse(data):
    require(len(data) >= HEADER.size, "fewer bytes than a header has")
    magic, version, header_size, size, crc, heads, width, positions, *records = HEADER.unpack_from(data)
    require(magic == b"KVQB" and version == 1 and header_size == 64, "not a KvBlock of version 1")
    require(size == len(data), f"block size: {size}, found {len(data)}")
    require(crc == checksum(data), "checksum")
    require(not any(data[21:24]) and not any(data[40:64]), "reserved bytes")
    require(16 <= width <= 512 and width % 16 == 0, f"head width: {width}")
    require(1 <= heads and heads * width <= 8192, f"heads: {heads}")
    require(1 <= positions <= POSITIONS, f"positions: {positions}")
    found = [parse_record(r, heads, width, positions) for r in records]
    block = Block(heads, width, positions, tuple(side for side, _ in found))
    sizes = []
    for side, names in found:
        for name in names:
            rows, _, part, parts = part_sizes(side, name, heads, width)
            sizes.append(rows + part * parts)
    require(HEADER.size + sum(sizes) == size, "planes that do not add up to the block size")
    at = HEADER.size
    for (side, names), planes in zip(found, block.planes, strict=True):
        for name in names:
            size = sizes.pop(0)
            planes[name] = parse_plane(side, name, data[at : at + size], heads, width, positions)
            at += size
    return block


# --- values


def readable(block, side_index):
    """Widths this block's side can be read at."""
    planes = block.planes[side_index]
    return [w for w in block.sides[side_index].readable if all(name in planes for name in planes_read(w))]


def read(block, side_index, width):
    """FP32 [position][head][channel]."""
    side, planes = block.sides[side_index], block.planes[side_index]
    if width == 16:
        return bf16_value(planes["bf16"].rows)[: block.positions]
    top = planes["hi2"].rows.astype(np.int64)
    if width >= 4:
        top = top * 4 + planes["mid2"].rows
    if width == 8:
        top = top * 16 + planes["low4"].rows
    if width == 2 and side.fitted:
        pair = planes["hi2"]
        level = top.astype(f32) - f32(1.5 if side.symmetric else 0)
    else:
        pair = planes[side.range_plane]
        d = 2 ** (side.bits - width)
        middle = 2 ** (side.bits - 1) if side.symmetric else 0
        level = (top * d - middle).astype(f32) + f32((d - 1) / 2)
    scale = pair.scale.view(np.float16).astype(f32)[:, None]
    offset = f32(0) if side.symmetric else pair.offset.view(np.float16).astype(f32)[:, None]
    x = from_groups(side, offset + scale * to_groups(side, level), block.heads, block.width)
    return rotate(x) if side.hadamard else x
