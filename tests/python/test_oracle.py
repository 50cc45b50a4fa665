"""The reference backend against tools/oracle.py, which shares no line with it: every named intermediate of every
layer and the full logits of every position, on the tiny twins, for every scheme."""

import functools
import pathlib
import random
import subprocess
import sys

import gguf
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from gguf_weights import GgufWeights  # noqa: E402
from oracle import Oracle  # noqa: E402
from probe import LOGITS, build_folder, item, nmse, run_steps, scrambled_blocks  # noqa: E402

SHAPES = ["tiny-tied", "tiny-untied"]
SCHEMES = ["bf16", "q8_0", "affine4_gs32", "scale4_gs32"]
KV_BLOCKS = 8
# Two blocks and a bit. The repeats give attention something to look back at.
TOKENS = [random.Random(5).randrange(151669) for _ in range(60)] + [0, 151668, 0, 7, 7, 7, 7, 7, 7, 7]

PER_LAYER = [
    "attn_norm", "qkv", "qkv_rope", "attn", "attn_residual",
    "mlp_norm", "gate_up", "mlp_act", "mlp_residual",
]  # fmt: skip


class Twin:
    """One artifact and what both sides compute from it, each once."""

    def __init__(self, path):
        self.path = path
        self.oracle = Oracle(path)
        self.found = functools.cache(self.compute)
        self.expected = functools.cache(self.compute_expected)

    def compute(self, kv_store):
        """The engine's named values, from a step over a scrambled block table."""
        step = [item(TOKENS, blocks=scrambled_blocks(len(TOKENS), KV_BLOCKS))]
        return run_steps(self.path, [step], kv_blocks=KV_BLOCKS, kv_store=kv_store, taps=True)[0]

    def compute_expected(self, kv_store):
        """The oracle's."""
        named = {}
        logits = self.oracle.forward(
            TOKENS,
            round_kv=kv_store == "bf16",
            tap=lambda name, layer, values: named.__setitem__((name, layer), values),
        )
        return named | {LOGITS: logits}


@pytest.fixture(scope="module", params=[(shape, scheme) for shape in SHAPES for scheme in SCHEMES], ids="-".join)
def twin(request, tmp_path_factory):
    shape, scheme = request.param
    path = tmp_path_factory.mktemp("twins") / f"{shape}-{scheme}.gguf"
    command = [build_folder() / "kipp", "synthesize", "--shape", shape, "--seed", "7", "--scheme", scheme]
    subprocess.run([*command, "--out", path], check=True, capture_output=True)
    return Twin(path)


@pytest.mark.parametrize(("kv_store", "bound"), [("f32", 1e-9), ("bf16", 5e-5)])
def test_every_intermediate_agrees(twin, kv_store, bound):
    found, expected = twin.found(kv_store), twin.expected(kv_store)
    assert found.keys() == expected.keys()
    layers = max(layer for _, layer in expected) + 1
    assert {(name, layer) for layer in range(layers) for name in PER_LAYER} <= found.keys()

    for key, values in expected.items():
        assert found[key].shape == values.shape, key
        assert nmse(found[key], values) <= bound, key
    # The bound holds for every position apart, not only for their sum.
    for row, values in enumerate(expected[LOGITS]):
        assert nmse(found[LOGITS][row], values) <= bound, f"logits at position {row}"
        assert found[LOGITS][row].argmax() == values.argmax(), f"logits at position {row}"


def test_rounding_of_keys_and_values_is_what_the_oracle_rounds(twin):
    """With the oracle rounding and the engine not (or the reverse) they must differ: the switch does something,
    and on both sides the same thing."""
    expected = twin.expected("bf16")[LOGITS]
    assert nmse(twin.found("bf16")[LOGITS], expected) * 10 < nmse(twin.found("f32")[LOGITS], expected)


def test_own_reader_equals_the_gguf_package(twin):
    own, package = GgufWeights(twin.path), twin.oracle.reader
    assert set(own.tensors) == {tensor.name for tensor in package.tensors}
    for tensor in package.tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        values = own.tensors[tensor.name].values()
        assert np.array_equal(values.reshape(expected.shape), expected), tensor.name
    for key in ("qwen3.block_count", "qwen3.rope.freq_base", "kipp.source.revision"):
        assert own.metadata[key] == package.fields[key].contents(), key
