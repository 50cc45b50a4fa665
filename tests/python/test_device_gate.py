"""tools/device_gate.sh refuses a machine without a GPU; what it runs where there is one goes the same way on `cpu`."""
import csv
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import device_gate  # noqa: E402


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture
def run(tmp_path, work):
    out = tmp_path / "out"
    out.mkdir()
    return device_gate.Run("cpu", out, work, time.monotonic() + 120)


def rows(run, name):
    return list(csv.DictReader((run.out / f"{name}.csv").open()))


@pytest.mark.parametrize("smi", [None, "exit 9", "echo 'No devices were found'"])
def test_without_a_gpu_nothing_is_measured(smi, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "grep", "dirname"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    if smi:
        (tools / "nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
        (tools / "nvidia-smi").chmod(0o755)
    done = subprocess.run([ROOT / "tools/device_gate.sh", tmp_path / "out"], env={"PATH": str(tools)}, capture_output=True,
                          text=True)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("device_gate: expected a") and done.stderr.endswith("nothing was measured\n")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_gate_compares_every_way_and_both_modes(run):
    device_gate.large_gate(run, "tiny-tied", "q8_0")
    found = rows(run, "gates")
    assert run.failed == 0 and {row["outcome"] for row in found} == {"pass"}
    assert {(row["mode"], row["gate"]) for row in found} == {
        (mode, gate) for mode in ("fast", "deterministic")
        for gate in ("prefill", "whole", "decode", "truncated and resumed", "batched")
    } | {("deterministic", "any cut, bit for bit")}  # fmt: skip
    assert "| tiny-tied q8_0 fast | 5 | 0.0e+00 | none |" in device_gate.table(run.out)


@pytest.mark.parametrize("fault", ["a little", "one bit", "nothing was written"])
def test_a_gate_fails_where_something_differs(fault, run, monkeypatch):
    right = device_gate.run_steps

    def wrong(*arguments, deterministic=None, **named):
        results = right(*arguments, **named)
        if deterministic is None:
            return results  # those of the reference
        logits = results[-1][device_gate.LOGITS]
        if fault == "a little":
            logits += 0.02 * abs(logits).max()
        elif fault == "one bit":
            logits[-1, 7] *= 1 + 2**-22
        else:
            logits[:] = float("nan")
        return results

    monkeypatch.setattr(device_gate, "run_steps", wrong)
    device_gate.gate(run, "tiny-tied", "q8_0", "cpu", list(range(40, 90)), 47)
    failed = {(row["mode"], row["gate"]) for row in rows(run, "gates") if row["outcome"] == "FAIL"}
    everywhere = {("fast", "batched"), ("deterministic", "batched")} if fault != "one bit" else set()
    assert failed == everywhere | {("deterministic", "any cut, bit for bit")}
    assert run.failed == len(failed)


def test_measurements_stand_beside_their_ceilings(run, monkeypatch):
    (run.out / "ceilings.csv").write_text("device,NVIDIA X,sm_90\ncopy,4.00,TB/s\nread,3.50,TB/s\nupload,50.00,GB/s\n"
                                          "product 8192x8192x8192,700.00,TFLOP/s\nproduct 1x1x1,9.00,TFLOP/s\n")  # fmt: skip
    measured = {"tokens": 64, "depth": 0, "batch": 1, "tokens_per_second": 250.0, "tokens_per_second_min": 240.0,
                "tokens_per_second_max": 260.0, "bytes_per_second": 3e12, "flops_per_second": 350e12}  # fmt: skip
    report = {"models": [{"load_seconds": 2.5, "results": [{"test": "prefill", **measured}, {"test": "decode", **measured}]}]}
    words = []

    def kipp(_, *given):
        words.extend(given)
        (run.work / "bench.json").write_text(json.dumps(report))
        return 1.0

    device_gate.artifact(run, "tiny-tied", "bf16")
    monkeypatch.setattr(device_gate.Run, "kipp", kipp)
    device_gate.bench(run, "tiny-tied", "bf16", "--prefill", 64, mode="fast")
    assert words[0] == "bench" and words[-1] == "--fast"
    prefill, decode = rows(run, "bench")
    assert (prefill["share"], decode["share"]) == ("0.500", "0.750"), "of the best product; of the best bandwidth"
    table = device_gate.table(run.out)
    assert "| tiny-tied bf16, fast | decode 64 | 0 | 1 | 250.0 | 3000.0 | 350.00 | 75% |" in table
    assert "| load of tiny-tied bf16 | 2.50 s |" in table


def test_the_server_answers_streams_side_by_side(run):
    device_gate.serve(run, "tiny-tied", "bf16", streams=2, tokens=3)
    first, together = rows(run, "times")
    assert float(first["value"]) > 0 and together["what"] == "server, 2 streams of 256 + 3, tiny-tied bf16"


def test_when_time_is_over_the_table_is_printed_and_the_rest_named(tmp_path):
    (tmp_path / "gates.csv").write_text(",".join(device_gate.COLUMNS["gates"]) + "\n"
                                        "tiny-tied,bf16,fast,reference,decode,8,2.0e-08,same,pass\n")  # fmt: skip
    done = subprocess.run([sys.executable, ROOT / "tools/device_gate.py", "--backend", "cpu", "--minutes", "0", "--out",
                           tmp_path], capture_output=True, text=True, env=os.environ)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "| tiny-tied bf16 fast | 1 | 2.0e-08 | none |" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("stopped before: gates of the small checkpoints; gate of qwen3-0.6b bf16;")
