"""Keys and values as a tiered cache gives them to a query, in numpy and float64: a second opinion on which position is
read at how many bits (src/backend/kv_policy.h says it in words) and on what codes then stand for. Codes are made by
tests/python/kvquant_format.py, which is written from kvquant's FORMAT.md; nothing here shares code with the engine.
"""

from __future__ import annotations

import math
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "python"))

import kvquant_format as kvb  # noqa: E402

BLOCK = kvb.POSITIONS
BITS = {"bf16": 16, "int8": 8, "int4": 4, "int2": 2}
PRESETS = {
    "bf16": "far=bf16",
    "int8": "far=int8",
    "tiered": "sink=1:int8,recent=8:int8,mid=8:int8/int4,far=int4",
    "tiered-max": "sink=1:int8,recent=4:int8,mid=8:int4,far=int4/int2",
}

Widths = tuple[int, int]  # bits of keys and of values


def parse_widths(text: str) -> Widths:
    key, _, value = text.partition("/")
    return BITS[key], BITS[value or key]


def wider(a: Widths, b: Widths) -> Widths:
    return max(a[0], b[0]), max(a[1], b[1])


def hadamard(width: int) -> np.ndarray:
    """The orthonormal transform as a matrix, in Sylvester's order; its own inverse."""
    turn = np.ones((1, 1))
    while len(turn) < width:
        turn = np.block([[turn, turn], [turn, -turn]])
    return turn / math.sqrt(width)


class Tiers:
    def __init__(self, policy: str, layers: int):
        """A preset's name, or a policy in words."""
        fields = dict(word.split("=") for word in PRESETS.get(policy, policy).split(","))
        self.rotate = fields.get("rotate", "on") == "on"
        self.blocks, self.widths = {}, {}
        for band in ("sink", "recent", "mid"):
            blocks, _, widths = fields.get(band, "0:bf16").partition(":")
            self.blocks[band], self.widths[band] = int(blocks), parse_widths(widths)
        self.widths["far"] = parse_widths(fields.get("far", "bf16"))
        listed = fields.get("up", fields.get("exempt", ""))
        self.apart = {int(layer) % layers for layer in listed.split("+") if layer}
        if "up" in fields:
            self.apart_widths = self.widths | {
                "mid": wider(self.widths["mid"], self.widths["recent"]),
                "far": wider(self.widths["far"], self.widths["mid"]),
            }
        else:
            self.apart_widths = dict.fromkeys(self.widths, (16, 16))

    def read_at(self, layer: int, query: int, key: int) -> Widths:
        """Of a key block by a query block."""
        distance = query - key
        if distance == 0:
            return 16, 16
        recent = self.blocks["recent"]
        if key < self.blocks["sink"]:
            band = "sink"
        elif distance <= recent:
            band = "recent"
        elif distance <= recent + self.blocks["mid"]:
            band = "mid"
        else:
            band = "far"
        return (self.apart_widths if layer in self.apart else self.widths)[band]

    def decode(self, block: np.ndarray, bits: int) -> np.ndarray:
        """A complete block of BF16 values, [32, heads, channels], after its codes were made and read at `bits`."""
        side = kvb.Side(bits=8, group=block.shape[-1], hadamard=self.rotate, narrowest=2)
        planes = kvb.code_rows(side, kvb.round_bf16(block))
        level = planes["hi2"].rows.astype(np.float64)
        if bits >= 4:
            level = level * 4 + planes["mid2"].rows
        if bits == 8:
            level = level * 16 + planes["low4"].rows
        if bits == 4:
            level = level * 16 + 7.5
        pair = planes["hi2" if bits == 2 else "mid2"]

        def by_row(patterns: np.ndarray) -> np.ndarray:
            heads = block.shape[1]
            return patterns.view(np.float16).astype(np.float64).reshape(heads, BLOCK).T[:, :, None]

        values = by_row(pair.offset) + by_row(pair.scale) * level
        return values @ hadamard(block.shape[-1]) if self.rotate else values

    def views(self, layer: int, k: np.ndarray, v: np.ndarray):
        """For each query block its first position and the keys and values, [up to its last position, heads,
        channels], that its queries attend to. k and v hold BF16 values."""
        decoded: dict[tuple[int, int, int], np.ndarray] = {}
        for query in range(-(-len(k) // BLOCK)):
            end = min(len(k), (query + 1) * BLOCK)
            seen = [k[:end].copy(), v[:end].copy()]
            for key in range(query):
                place = slice(key * BLOCK, (key + 1) * BLOCK)
                for side, bits in enumerate(self.read_at(layer, query, key)):
                    if bits == 16:
                        continue
                    at = side, key, bits
                    if at not in decoded:
                        decoded[at] = self.decode((k, v)[side][place], bits)
                    seen[side][place] = decoded[at]
            yield query * BLOCK, *seen
