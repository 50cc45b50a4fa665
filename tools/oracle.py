"""Qwen3 in NumPy: a second opinion that shares no line with the engine.

It reads artifacts through the gguf package, computes one sequence at a time in float64 (or float32) with whole
matrices, and names its intermediates as the engine's forward pass does (src/model/forward.h), so that the two can
be compared layer by layer. Slow and plain on purpose.

    python tools/oracle.py kipp-demo.gguf --tokens 12522,5193,264,882     # the five best next tokens
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import gguf
import numpy as np
from kv_tiers import Tiers

KV_HEADS = 8
HEAD_DIM = 128
EPSILON = 1e-6
HEAD_CHUNK = 16384  # rows of the output head decoded at a time

Tap = Callable[[str, int, np.ndarray], None]


def round_to_bf16(x: np.ndarray) -> np.ndarray:
    """To the nearest BF16, ties to even, in x's own type. Goes through float32, as the engine's values are."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(x.dtype)


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(EPSILON)) * weight


def rotate(x: np.ndarray, positions: np.ndarray, theta: float) -> np.ndarray:
    """RoPE of [tokens, heads, HEAD_DIM]: (x[i], x[i + 64]) is a complex number turned by position * theta^(-i/64)."""
    half = HEAD_DIM // 2
    angle = positions[:, None] / theta ** (np.arange(half) / half)  # float64
    turn = np.exp(1j * angle)[:, None, :]
    turned = (x[..., :half].astype(np.float64) + 1j * x[..., half:]) * turn
    return np.concatenate([turned.real, turned.imag], axis=-1).astype(x.dtype)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal; q [tokens, query heads, HEAD_DIM], the last of the positions of k and v, [cached, KV_HEADS, HEAD_DIM]."""
    tokens, query_heads, _ = q.shape
    future = np.triu(np.ones((tokens, len(k)), bool), len(k) - tokens + 1)
    out = np.empty_like(q)
    for head in range(query_heads):
        kv_head = head * KV_HEADS // query_heads
        scores = q[:, head] @ k[:, kv_head].T / q.dtype.type(np.sqrt(HEAD_DIM))
        scores[future] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, kv_head]
    return out.reshape(tokens, query_heads * HEAD_DIM)


def tiered_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, tiers: Tiers, layer: int) -> np.ndarray:
    """The same where what queries read of k and v depends on the distance."""
    return np.concatenate(
        [attention(q[first : len(seen_k)], seen_k, seen_v) for first, seen_k, seen_v in tiers.views(layer, k, v)]
    )


class QuickReader(gguf.GGUFReader):
    """The package's reader over a plain array: slicing numpy's memmap costs several times as much, and the
    vocabulary has 300,000 strings (2 seconds instead of 7)."""

    @property
    def data(self) -> np.ndarray:
        return self._data

    @data.setter
    def data(self, mapped: np.ndarray) -> None:
        self._data = np.asarray(mapped)


class Oracle:
    def __init__(self, path: str, dtype: type = np.float64):
        self.path = path
        self.reader = QuickReader(path)
        self.dtype = dtype
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        fields = self.reader.fields
        self.layers = int(fields["qwen3.block_count"].contents())
        self.query_heads = int(fields["qwen3.attention.head_count"].contents())
        self.theta = float(fields["qwen3.rope.freq_base"].contents())

    def matrix(self, name: str, rows: slice | list[int] = slice(None)) -> np.ndarray:
        tensor = self.tensors[name + ".weight"]
        return gguf.quants.dequantize(tensor.data[rows], tensor.tensor_type).astype(self.dtype)

    def forward(
        self,
        tokens: list[int],
        *,
        round_kv: bool = True,
        kv: str = "bf16",
        last_only: bool = False,
        tap: Tap | None = None,
    ) -> np.ndarray:
        """Logits [tokens, vocabulary] of a sequence from position 0, or [1, vocabulary] of its last token. `kv` is a
        policy of src/backend/kv_policy.h."""
        tell = tap or (lambda name, layer, values: None)
        positions = np.arange(len(tokens), dtype=np.float64)
        q_width, kv_width = self.query_heads * HEAD_DIM, KV_HEADS * HEAD_DIM
        keep = round_to_bf16 if round_kv else lambda values: values
        tiers = Tiers(kv, self.layers)

        x = self.matrix("token_embd", list(tokens))
        tell("embed", -1, x)
        for layer in range(self.layers):
            at = f"blk.{layer}."
            h = rms_norm(x, self.matrix(at + "attn_norm"))
            tell("attn_norm", layer, h)
            qkv = h @ np.concatenate([self.matrix(at + name) for name in ("attn_q", "attn_k", "attn_v")]).T
            tell("qkv", layer, qkv)
            q, k, v = np.split(qkv, [q_width, q_width + kv_width], axis=1)
            q = q.reshape(len(tokens), self.query_heads, HEAD_DIM)
            k, v = (part.reshape(len(tokens), KV_HEADS, HEAD_DIM) for part in (k, v))
            q = rotate(rms_norm(q, self.matrix(at + "attn_q_norm")), positions, self.theta)
            k = rotate(rms_norm(k, self.matrix(at + "attn_k_norm")), positions, self.theta)
            tell("qkv_rope", layer, np.concatenate([part.reshape(len(tokens), -1) for part in (q, k, v)], axis=1))
            context = tiered_attention(q, keep(k), keep(v), tiers, layer)
            tell("attn", layer, context)
            x = x + context @ self.matrix(at + "attn_output").T
            tell("attn_residual", layer, x)
            h = rms_norm(x, self.matrix(at + "ffn_norm"))
            tell("mlp_norm", layer, h)
            gate, up = h @ self.matrix(at + "ffn_gate").T, h @ self.matrix(at + "ffn_up").T
            tell("gate_up", layer, np.concatenate([gate, up], axis=1))
            act = gate / (1 + np.exp(-gate)) * up
            tell("mlp_act", layer, act)
            x = x + act @ self.matrix(at + "ffn_down").T
            tell("mlp_residual", layer, x)

        last = rms_norm(x[-1:] if last_only else x, self.matrix("output_norm"))
        tell("final_norm", -1, last)
        head = "output" if "output.weight" in self.tensors else "token_embd"
        rows = self.tensors[head + ".weight"].data.shape[0]
        return np.concatenate(
            [last @ self.matrix(head, slice(at, at + HEAD_CHUNK)).T for at in range(0, rows, HEAD_CHUNK)], axis=1
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact")
    parser.add_argument("--tokens", required=True, help="comma-separated token ids")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--exact-kv", action="store_true", help="do not round keys and values to BF16")
    parser.add_argument("--kv", default="bf16", help="policy of the cache: a preset or words (src/backend/kv_policy.h)")
    args = parser.parse_args()
    oracle = Oracle(args.artifact, np.dtype(args.dtype).type)
    tokens = [int(t) for t in args.tokens.split(",")]
    logits = oracle.forward(tokens, round_kv=not args.exact_kv, kv=args.kv, last_only=True)[0]
    for token in np.argsort(-logits)[:5]:
        print(f"{token:7d} {logits[token]:.6f}")


if __name__ == "__main__":
    main()
