"""Bytes of a tiered cache from its policy alone: who reads which block at which width, so which planes it keeps.

A second reckoning beside src/backend/kv_policy.cc, from the format that its header describes; the presets' words are
read there. Nothing here is measured.

    python tools/kv_arithmetic.py tiered 32768
    python tools/kv_arithmetic.py sink=1:int8,recent=8:int8,mid=8:int8/int4,far=int4 8192
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field

from probe import REPOSITORY

BLOCK = 32  # positions
KV_HEADS, HEAD_DIM = 8, 128
ELEMENTS = BLOCK * KV_HEADS * HEAD_DIM  # of one side of one layer of a block
WIDTHS = {"bf16": 16, "int8": 8, "int4": 4, "int2": 2}
PLANES = {"hi2": 2, "mid2": 2, "low4": 4, "bf16": 16}  # bits of an element
READS = {"bf16": {"bf16"}, "int8": {"hi2", "mid2", "low4"}, "int4": {"hi2", "mid2"}, "int2": {"hi2"}}
BANDS = ("open", "sink", "recent", "mid", "far")
PAIR_BITS = 2 * 16 / HEAD_DIM  # FP16 scale and offset of a token and head, an element's share

Widths = tuple[str, str]  # of keys and of values
BF16: Widths = ("bf16", "bf16")


def preset_words() -> dict[str, str]:
    source = (REPOSITORY / "src" / "backend" / "kv_policy.cc").read_text()
    return dict(re.findall(r'\.name = "([^"]+)", \.words = "([^"]+)"', source))


def wider(a: Widths, b: Widths) -> Widths:
    key, value = (max(pair, key=WIDTHS.__getitem__) for pair in zip(a, b))
    return key, value


@dataclass
class Policy:
    words: str
    blocks: dict[str, int] = field(default_factory=lambda: {"sink": 0, "recent": 0, "mid": 0})
    tiers: dict[str, Widths] = field(default_factory=lambda: dict.fromkeys(BANDS, BF16))
    apart: list[int] = field(default_factory=list)  # layers
    up: bool = False  # they are read one tier up, rather than as BF16

    @classmethod
    def parse(cls, text: str) -> Policy:
        policy = cls(preset_words().get(text, text))
        for word in policy.words.split(","):
            name, _, value = word.partition("=")
            if name in policy.blocks:
                count, _, value = value.partition(":")
                policy.blocks[name] = int(count)
            if name in BANDS:
                key, _, rest = value.partition("/")
                policy.tiers[name] = (key, rest or key)
            elif name in ("up", "exempt"):
                policy.apart, policy.up = [int(layer) for layer in value.split("+")], name == "up"
            elif name != "rotate":
                raise ValueError(f"policy: expected sink, recent, mid, far, up, exempt or rotate, found {name}")
        return policy

    def band(self, query: int, key: int) -> str:
        distance = query - key
        if distance == 0:
            return "open"
        if key < self.blocks["sink"]:
            return "sink"
        if distance <= self.blocks["recent"]:
            return "recent"
        return "mid" if distance <= self.blocks["recent"] + self.blocks["mid"] else "far"

    def tiers_of(self, layer: int, layers: int) -> dict[str, Widths]:
        if layer not in self.apart and layer - layers not in self.apart:
            return self.tiers
        if not self.up:
            return dict.fromkeys(BANDS, BF16)
        return self.tiers | {
            "mid": wider(self.tiers["mid"], self.tiers["recent"]),
            "far": wider(self.tiers["far"], self.tiers["mid"]),
        }

    def parameter_bits(self) -> float:
        """Of an element, both sides together averaged; a block keeps them whatever its planes are."""
        pairs = 0
        for side in (0, 1):
            read = [
                WIDTHS[tiers[band][side]]
                for tiers in (self.tiers, self.tiers_of(self.apart[0], 1 << 20) if self.apart else self.tiers)
                for band in BANDS[1:]
            ]
            pairs += (min(read) < 16) + (min(read) == 2)
        return pairs * PAIR_BITS / 2

    def kept(self, band: str, tiers: dict[str, Widths], side: int) -> set[str]:
        """Planes of a block that its next reader finds in `band`: what is read there and further away."""
        if band in ("open", "sink"):
            return READS[tiers[band][side]]
        later = BANDS[BANDS.index(band) :]
        return set().union(*(READS[tiers[name][side]] for name in later))

    def block_bits(self, band: str, layers: int) -> float:
        """Bits of planes of an element of a block in `band`, mean over layers and sides."""
        total = 0
        for layer in range(layers):
            tiers = self.tiers_of(layer, layers)
            total += sum(PLANES[plane] for side in (0, 1) for plane in self.kept(band, tiers, side))
        return total / (2 * layers)

    def band_blocks(self, positions: int) -> dict[str, int]:
        """How many blocks of a sequence its last position finds in each band."""
        last = (positions - 1) // BLOCK
        found = [self.band(last, key) for key in range(last + 1)]
        return {name: found.count(name) for name in BANDS}

    def band_bytes(self, positions: int, layers: int) -> dict[str, float]:
        """Planes by band, and "parameters", of one sequence whose last position is being read."""
        one = 2 * layers * ELEMENTS / 8
        counts = self.band_blocks(positions)
        found = {name: count * self.block_bits(name, layers) * one for name, count in counts.items()}
        return found | {"parameters": sum(counts.values()) * self.parameter_bits() * one}

    def bytes(self, positions: int, layers: int) -> float:
        return sum(self.band_bytes(positions, layers).values())

    def bits(self, positions: int, layers: int) -> float:
        """All in, an element of the blocks that the sequence takes."""
        return self.bytes(positions, layers) * 8 / (-(-positions // BLOCK) * 2 * layers * ELEMENTS)


def main() -> None:
    policy, positions = Policy.parse(sys.argv[1]), int(sys.argv[2])
    layers = int(sys.argv[3]) if len(sys.argv) > 3 else 28
    print(f"{policy.words}: {policy.bits(positions, layers):.3f} bits an element at {positions} positions")


if __name__ == "__main__":
    main()
