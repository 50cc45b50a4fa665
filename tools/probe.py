"""Drives build/tests/eval_probe: steps in, logits and named intermediates out, as float32 arrays."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import tempfile

import numpy as np

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
BLOCK = 32

Step = dict[tuple[str, int], np.ndarray]  # (name, layer) -> [rows, cols]
LOGITS = ("logits", -1)


def build_folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("KIPP_BUILD", REPOSITORY / "build"))


def item(tokens: list[int], *, pos: int = 0, seq: int = 0, blocks: list[int], want: str = "all") -> dict:
    return {"seq": seq, "pos": pos, "tokens": tokens, "blocks": blocks, "want": want}


def scrambled_blocks(positions: int, total: int, seed: int = 1) -> list[int]:
    """A block table in no order: what an engine must not notice."""
    return random.Random(seed).sample(range(total), -(-positions // BLOCK))


def run_steps(
    artifact: os.PathLike | str,
    steps: list[list[dict]],
    *,
    kv_blocks: int,
    backend: str = "reference",
    kv_store: str = "bf16",
    kv: str = "",
    taps: bool = False,
    threads: int = 0,
    weights: str = "packed",
    deterministic: bool = True,
    timeout: float | None = None,
) -> list[Step]:
    """One dictionary per step. An error of the engine is a RuntimeError with its sentence. `kv`, where it is given, is
    the policy of a tiered store, all planes of which are held. `timeout`: seconds."""
    with tempfile.TemporaryDirectory() as out:
        request = {
            "artifact": str(artifact),
            "backend": backend,
            "kv_store": "tiered" if kv else kv_store,
            "kv": kv,
            "kv_blocks": kv_blocks,
            "out": out,
            "taps": taps,
            "threads": threads,
            "weights": weights,
            "deterministic": deterministic,
            "steps": steps,
        }
        done = subprocess.run(
            [build_folder() / "tests" / "eval_probe"], input=json.dumps(request), capture_output=True, text=True,
            timeout=timeout,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        results: list[Step] = [{} for _ in steps]
        for line in done.stdout.splitlines():
            step, layer, name, rows, cols, file = line.split(maxsplit=5)
            values = np.fromfile(file, "<f4").reshape(int(rows), int(cols))
            results[int(step)][name, int(layer)] = values
        return results


def nmse(values: np.ndarray, truth: np.ndarray) -> float:
    """sum((a - b)^2) / sum(b^2), in float64."""
    truth = truth.astype(np.float64)
    return float(np.sum((values.astype(np.float64) - truth) ** 2) / np.sum(truth**2))
