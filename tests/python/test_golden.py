"""The reference backend against the golden logits that transformers computed from the synthetic twins' weights
(tests/data/golden, made by tools/golden.py). `./dev gate` does the same for the demo checkpoint."""

import hashlib
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from probe import LOGITS, build_folder, item, nmse, run_steps  # noqa: E402

GOLDEN = ROOT / "tests" / "data" / "golden"


@pytest.mark.parametrize("checkpoint", ["tiny-tied", "tiny-untied"])
def test_logits_are_those_of_transformers(checkpoint, tmp_path):
    manifest = json.loads((GOLDEN / f"{checkpoint}-bf16.json").read_text())
    path = tmp_path / "twin.gguf"
    seed = manifest["revision"].removeprefix("seed-")
    command = [build_folder() / "kipp", "synthesize", "--shape", checkpoint, "--seed", seed, "--out", path]
    subprocess.run(command, check=True, capture_output=True)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == manifest["artifact_sha256"], (
        "the twin's bytes changed: make the golden again with tools/golden.py"
    )

    steps = [
        [item(case["ids"], seq=n, blocks=[3 + n], want="last")] for n, case in enumerate(manifest["cases"])
    ]
    for kv_store, bound in (("bf16", 5e-5), ("f32", 1e-9)):
        results = run_steps(path, steps, kv_blocks=8, kv_store=kv_store)
        for case, result in zip(manifest["cases"], results, strict=True):
            expected = np.load(GOLDEN / case["file"])
            assert result[LOGITS].shape == (1, expected.size)
            assert result[LOGITS][0].argmax() == case["arg_max"] == expected.argmax()
            assert nmse(result[LOGITS][0], expected) <= bound
