"""tools/webgpu_gate.sh refuses a machine without a GPU; what it runs where there is one goes the same way on `cpu`."""
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
import webgpu_gate  # noqa: E402


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


def program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("devices, said", [
    ({"error": None, "devices": [{"name": "llvmpipe", "type": "CPU"}]}, "llvmpipe computes on the CPU"),
    ({"error": "adapter: expected a GPU, found none", "devices": []}, "adapter: expected a GPU, found none"),
])  # fmt: skip
def test_without_a_gpu_nothing_is_measured(devices, said, tmp_path):
    listed = json.dumps([{"backend": "cpu", "error": None, "devices": []}, {"backend": "webgpu", **devices}])
    program(tmp_path / "build" / "kipp", f"echo '{listed}'")
    (tmp_path / "wgpu/lib").mkdir(parents=True)
    (tmp_path / "wgpu/lib/libwgpu_native.so").touch()
    done = subprocess.run([ROOT / "tools/webgpu_gate.sh", tmp_path / "out"], capture_output=True, text=True,
                          env=os.environ | {"KIPP_BUILD": str(tmp_path / "build"), "KIPP_WGPU_ROOT": str(tmp_path / "wgpu"),
                                            "PYTHON": sys.executable})  # fmt: skip
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    assert done.stderr == f"webgpu_gate: expected a GPU that Vulkan shows, found none: {said}; nothing was measured\n"


@pytest.mark.parametrize("given, said", [({"KIPP_WGPU_ROOT": "/nowhere"}, "expected wgpu-native in /nowhere, found no lib/libwgpu_native.so"),
                                         ({"PYTHON": "false"}, "expected numpy in false, found none")])  # fmt: skip
def test_what_it_needs_is_asked_for_first(given, said, tmp_path):
    (tmp_path / "wgpu/lib").mkdir(parents=True)
    (tmp_path / "wgpu/lib/libwgpu_native.so").touch()
    done = subprocess.run([ROOT / "tools/webgpu_gate.sh", tmp_path / "out"], capture_output=True, text=True,
                          env=os.environ | {"KIPP_WGPU_ROOT": str(tmp_path / "wgpu"), "PYTHON": sys.executable} | given)  # fmt: skip
    assert done.returncode == 2 and done.stderr.startswith(f"webgpu_gate: {said}") and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_test_programs_pass_or_fail(run, tmp_path, monkeypatch):
    monkeypatch.setenv("KIPP_BUILD", str(tmp_path))
    with pytest.raises(RuntimeError, match="found none"):
        webgpu_gate.tests(run)
    program(tmp_path / "tests" / "webgpu_good_test", "exit 0")
    program(tmp_path / "tests" / "kvquant_wgpu_bad_test", "echo 'expected 1, found 2'; exit 1")
    program(tmp_path / "tests" / "cpu_other_test", "exit 1")
    webgpu_gate.tests(run)
    assert {row["test"]: row["outcome"] for row in rows(run, "tests")} == {"webgpu_good_test": "pass", "kvquant_wgpu_bad_test": "FAIL"}
    assert run.failed == 1 and "expected 1, found 2" in (run.out / "kvquant_wgpu_bad_test.log").read_text()


@pytest.mark.parametrize("same, outcome", [(None, "pass"), (0.9, "FAIL")])
def test_agreement_is_counted_over_all_positions(same, outcome, run, monkeypatch):
    told = webgpu_gate.said

    def changed(run, *words):
        text = told(run, *words)
        if "--against" not in words or same is None:
            return text
        report = json.loads(text)
        report["kl"]["same_top"] = same
        return json.dumps(report)

    monkeypatch.setattr(webgpu_gate, "said", changed)
    monkeypatch.setattr(webgpu_gate, "PROMPTS", ["Once upon a time", "One day"])
    webgpu_gate.agreement(run, "kipp-demo", "bf16", tokens=6)
    (row,) = rows(run, "agreement")
    assert int(row["positions"]) == 2 * 5 and row["outcome"] == outcome and run.failed == (outcome == "FAIL")
    assert float(row["same"]) == (1 if same is None else same) and float(row["worst_kl"]) == 0


def test_targets_are_judged_by_the_figures_they_name(run):
    def measured(model, scheme, mode, test, tokens, depth, speed, share=""):
        run.add("bench", model, scheme, mode, test, tokens, depth, 1, speed, speed, speed, 1, 1, share)

    measured("big", "q8_0", "deterministic", "decode", 64, 0, 100, 0.51)
    measured("big", "bf16", "deterministic", "decode", 64, 0, 100, 0.49)
    measured("small", "bf16", "deterministic", "decode", 64, 0, 500)
    measured("small", "bf16", "deterministic", "decode", 64, 16384, 100)
    measured("small", "bf16", "kv tiered", "decode", 64, 16384, 125)
    measured("small", "bf16", "deterministic", "prefill", 2048, 0, 9000)
    measured("small", "bf16", "deterministic", "prefill", 512, 0, 4500)
    measured("small", "bf16", "cpu", "prefill", 512, 0, 1000)
    webgpu_gate.targets(run, "small", "big", 16384, 512)
    assert [(row["measured"], row["target"], row["outcome"]) for row in rows(run, "targets")] == [
        ("0.510", "0.5", "met"), ("0.490", "0.5", "MISSED"), ("1.250", "1.2", "met"), ("4.500", "5", "MISSED")]  # fmt: skip
    assert run.failed == 0


def test_a_part_that_takes_too_long_is_named_and_the_next_begins(tmp_path, monkeypatch, capsys):
    def slow(run):
        subprocess.run(["sleep", "60"], timeout=run.seconds_left())

    parts = [("slow part", 0.2, slow), ("quick part", 5, lambda run: run.add("times", "quick", 1, "s"))]
    monkeypatch.setattr(webgpu_gate, "plan", lambda *_: parts)
    monkeypatch.setattr(sys, "argv", ["webgpu_gate", "--backend", "cpu", "--out", str(tmp_path)])
    assert webgpu_gate.main() == 0
    said = capsys.readouterr().out
    assert "| quick | 1 s |" in said and said.splitlines()[-1] == "stopped before the end of: slow part (limit 0.2 s)"


def test_the_parts_run_on_any_backend(run):
    names = [name for name, _, _ in webgpu_gate.plan("qwen3-0.6b", "qwen3-1.7b")]
    assert names[:3] == ["tests", "gates of the small checkpoints", "agreement of kipp-demo"] and names[-1] == "targets"
    for name, _, part in webgpu_gate.plan("tiny-tied", "tiny-tied"):
        if name in ("bench of tiny-tied bf16", "bench of tiny-tied bf16, tiered", "bench of tiny-tied on cpu", "targets"):
            part(run)
    assert [row["what"] for row in rows(run, "targets")] == ["decode of tiny-tied at 64, tiered over bf16",
                                                             "prefill of 64, tiny-tied, times cpu"]  # fmt: skip
