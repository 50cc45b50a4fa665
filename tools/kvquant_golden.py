"""Writes the golden files of kvquant's block format: blocks as the implementation in tests/python/kvquant_format.py
makes them, which shares no code with the library.

    python tools/kvquant_golden.py [--out src/kvquant/tests/data]

NAME.kvb is a stored block; golden.txt says how each was made, with the SHA-256 of its bytes and of the values read from
it at every width. README.md there describes both. The files are frozen: this is how they came to be and how a later
version of the format gets its own, and tests/python/test_kvquant_format.py fails if it stops making the same bytes.
Needs numpy.
"""

import argparse
import hashlib
import pathlib
import sys
from dataclasses import dataclass

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))

import kvquant_format as kvb  # noqa: E402
from kvquant_format import Side  # noqa: E402

OUT = ROOT / "src" / "kvquant" / "tests" / "data"
ALL = ("hi2", "mid2", "low4", "bf16")
CODES = ALL[:3]


@dataclass(frozen=True)
class Golden:
    name: str
    heads: int
    width: int
    key: Side
    value: Side
    key_planes: tuple = CODES  # as far as the side has them
    value_planes: tuple = CODES
    positions: int = 32
    input: str = "normal"


GOLDENS = (
    Golden("bf16", 1, 16, Side(16), Side(16), ("bf16",), ("bf16",), input="scaled"),
    Golden("open7", 2, 16, Side(8, group=16), Side(4, group=32), ("bf16",), ("bf16",), positions=7),
    Golden("int8", 2, 32, Side(8, group=32), Side(8, group=16), ALL, CODES),
    Golden("int4", 2, 32, Side(4, group=32), Side(4, group=32, narrowest=4), ALL),
    Golden("int2", 2, 32, Side(2, group=32), Side(2, group=32, symmetric=True)),
    Golden("symmetric", 2, 32, Side(8, group=32, symmetric=True), Side(4, group=16, symmetric=True)),
    Golden("spanning", 2, 32, Side(8, group=64), Side(4, group=64, symmetric=True)),
    Golden("straddling", 3, 48, Side(8, group=72), Side(4, group=36), input="outlier"),
    Golden("channel32", 3, 16, Side(8, True, 32), Side(4, True, 32, symmetric=True), input="outlier"),
    Golden("channel8", 1, 32, Side(8, True, 8, hadamard=True), Side(4, True, 8), input="scaled"),
    Golden("hadamard32", 1, 32, Side(8, group=32, hadamard=True), Side(4, group=8, hadamard=True), input="outlier"),
    Golden("hadamard64", 2, 64, Side(8, group=128, hadamard=True), Side(4, group=64, hadamard=True), input="outlier"),
    Golden("narrowest", 2, 32, Side(8, group=32, narrowest=8), Side(8, group=32, narrowest=4)),
    Golden("clipped", 2, 32, Side(4, group=32, clip=85), Side(2, group=64, symmetric=True, clip=90)),
    Golden("demoted", 2, 32, Side(8, group=32), Side(8, group=32, hadamard=True), ("hi2", "mid2"), ("hi2",)),
    Golden("mixed", 2, 32, Side(8, group=32), Side(4, group=32), ("hi2", "bf16"), ("hi2", "mid2", "bf16")),
    Golden("edges", 1, 16, Side(8, group=16), Side(4, group=16), ALL, ALL, input="edges"),
    Golden("edges_hadamard", 1, 32, Side(8, group=32, hadamard=True), Side(2, group=32, hadamard=True), input="edges"),
    Golden("edges_symmetric", 1, 16, Side(8, group=16, symmetric=True), Side(4, True, 32), input="edges"),
    Golden("qwen3", 8, 128, Side(8), Side(8), CODES, ("hi2", "mid2"), input="outlier"),
)


def mixed_bits(seed, side, count):
    """count u64 of (seed, side, index): the finalizer of SplitMix64 over a counter."""
    z = np.uint64(seed << 40 | side << 32) + np.arange(1, count + 1, dtype=np.uint64)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def golden_rows(golden, seed, side_index):
    """The FP32 rows [position][head][channel] of one side, by the rule of README.md."""
    side = (golden.key, golden.value)[side_index]
    shape = (golden.positions, golden.heads, golden.width)
    bits = mixed_bits(seed, side_index, golden.positions * golden.heads * golden.width).reshape(shape)
    sum4 = sum((bits >> np.uint64(16 * i) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4))
    x = (sum4 - 131070).astype(np.float32) * np.float32(2.0**-15)
    position = np.arange(golden.positions)[:, None, None]
    channel = np.arange(golden.width)[None, None, :]
    if golden.input == "outlier":
        x = np.where(channel % 16 == 5, x * np.float32(32), x)
    elif golden.input == "scaled":
        x = x * np.exp2(position % 25 - 12).astype(np.float32)
    elif golden.input == "edges":
        minus = bits >> np.uint64(63) == 1
        limit = np.float32(65280 / golden.width if side.hadamard else 65280)
        denormal = (bits & np.uint64(0x7FFFFF)).astype(np.uint32).view(np.float32)
        kinds = (
            np.zeros_like(x),
            np.broadcast_to(x[:, :1, :1], shape),
            np.where(minus, -limit, limit),
            np.where(minus, -denormal, denormal),
            x * np.float32(2.0**-40),
            x * np.float32(2.0**-20),
            x + np.float32(1000),
            np.broadcast_to(np.where(channel == 0, np.float32(1), np.float32(-0.0)), shape),
        )
        x = np.choose(np.broadcast_to(position % 8, shape), kinds)
    return np.ascontiguousarray(x, np.float32)


def make(golden, seed):
    sides = (golden.key, golden.value)
    planes = [[p for p in names if p in s.planes] for s, names in zip(sides, (golden.key_planes, golden.value_planes))]
    rows = [golden_rows(golden, seed, i) for i in (0, 1)]
    return kvb.make_block(sides, *rows, *planes)


def side_fields(side, planes):
    names = sum(1 << kvb.PLANES.index(name) for name in planes)
    if not side.coded:
        return f"16 0 0 0 0 0 0 {names}"
    flags = f"{int(side.per_channel)} {side.group} {int(side.symmetric)} {int(side.hadamard)}"
    return f"{side.bits} {flags} {side.narrowest} {side.clip} {names}"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def files():
    """{file name: bytes} of everything this script writes."""
    made = {}
    lines = ["# made by tools/kvquant_golden.py; README.md describes the lines"]
    for seed, golden in enumerate(GOLDENS, start=1):
        block = make(golden, seed)
        data = kvb.write(block)
        made[f"{golden.name}.kvb"] = data
        sides = " ".join(side_fields(side, planes) for side, planes in zip(block.sides, block.planes))
        shape = f"{golden.heads} {golden.width} {golden.positions}"
        lines.append(f"block {golden.name} {shape} {sides} {golden.input} {seed} {sha256(data)}")
        for index, name in enumerate(("key", "value")):
            for width in kvb.readable(block, index):
                values = kvb.read(block, index, width).astype("<f4").tobytes()
                lines.append(f"values {name} {width} {sha256(values)}")
    made["golden.txt"] = ("\n".join(lines) + "\n").encode()
    return made


def main():
    parser = argparse.ArgumentParser(description="Writes the golden files of kvquant's block format.")
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files().items():
        (out / name).write_bytes(data)


if __name__ == "__main__":
    main()
