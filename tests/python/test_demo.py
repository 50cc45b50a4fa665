"""The demo checkpoint as a newcomer meets it: it unpacks itself, says the same thing twice, remembers a conversation,
and its logits are those transformers computed from the same weights."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from probe import LOGITS, build_folder, item, nmse, run_steps, scrambled_blocks  # noqa: E402
from prompts import PASSAGE  # noqa: E402

GOLDEN = ROOT / "tests" / "data" / "golden"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("kipp-home")


def kipp(home, *arguments, stdin=""):
    return subprocess.run(
        [build_folder() / "kipp", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "KIPP_HOME": str(home)},
        timeout=600,
    )


@pytest.fixture(scope="module")
def first_run(home):
    return kipp(home, "run", "--prompt", "Once upon a time", "--max-tokens", "64", "--temperature", "0")


@pytest.fixture(scope="module")
def artifact(home, first_run):
    (path,) = (home / "models").iterdir()
    return path


def test_unpacks_once_and_says_the_same_twice(home, first_run, artifact):
    assert first_run.returncode == 0, first_run.stderr
    assert "unpacking the demo checkpoint" in first_run.stderr
    stamp = artifact.stat().st_mtime_ns
    second = kipp(home, "run", "--prompt", "Once upon a time", "--max-tokens", "64", "--temperature", "0")
    assert second.returncode == 0, second.stderr
    assert "unpacking" not in second.stderr
    assert artifact.stat().st_mtime_ns == stamp
    assert second.stdout == first_run.stdout
    assert len(first_run.stdout.split()) > 40


def test_is_the_pinned_artifact(artifact):
    pins = (ROOT / "src" / "convert" / "demo_pack.h").read_text()
    assert hashlib.sha256(artifact.read_bytes()).hexdigest() in pins


def test_a_damaged_artifact_is_refused(home, artifact):
    size = artifact.stat().st_size
    copy = home / "cut.gguf"
    copy.write_bytes(artifact.read_bytes()[:-1])
    result = kipp(home, "run", "--model", str(copy), "--prompt", "x", "--max-tokens", "1")
    copy.unlink()
    assert result.returncode == 1
    assert str(size) in result.stderr and str(size - 1) in result.stderr


def test_chat_holds_three_turns_and_evaluates_only_what_is_new(home, artifact):
    turns = "Hello!\nTell me a story about a lost kite.\nThank you!\n"
    result = kipp(home, "chat", "--temperature", "0", "--max-tokens", "80", "--verbose", stdin=turns)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("turn ")]
    assert len(lines) == 3
    for before, line in zip(lines, lines[1:]):
        assert int(line.split(" new")[0].split()[-1]) < 30, (before, line)  # the question and its frame
    assert "turn 3: 0 reused" not in result.stderr


def test_remembers_a_number(home, artifact):
    facts = "".join(f"The number of {name} is {number}.\n" for name, number in [("Mira", 4821), ("Otto", 937)])
    prompt = facts + "Once upon a time there was a small boat. It sailed over the sea.\nWhat is the number of Mira?"
    result = kipp(home, "chat", "--temperature", "0", "--max-tokens", "16", stdin=prompt.replace("\n", " ") + "\n")
    assert result.returncode == 0, result.stderr
    assert "4821" in result.stdout


# As stored, a key or value close to the middle between two BF16 numbers may round to the other one.
@pytest.mark.parametrize("store, bound", [("f32", 1e-7), ("bf16", 1e-5)])
@pytest.mark.parametrize("scheme", ["bf16", "q8_0", "affine4_gs32", "scale4_gs32"])
def test_cpu_agrees_with_reference(home, artifact, scheme, store, bound):
    path = artifact
    if scheme != "bf16":
        path = home / f"{scheme}-{store}.gguf"
        assert kipp(home, "quantize", str(artifact), str(path), "--scheme", scheme).returncode == 0
    steps = [[item(PASSAGE[:40], blocks=[5, 2, 6])]]
    steps += [[item([token], pos=40 + at, blocks=[5, 2, 6])] for at, token in enumerate(PASSAGE[40:60])]
    runs = {name: run_steps(path, steps, kv_blocks=8, backend=name, kv_store=store) for name in ("cpu", "reference")}
    for cpu, reference in zip(runs["cpu"], runs["reference"], strict=True):
        for found, expected in zip(cpu[LOGITS], reference[LOGITS], strict=True):
            assert found.argmax() == expected.argmax()
            assert nmse(found, expected) <= bound


def test_logits_are_those_of_transformers(artifact):
    manifest = json.loads((GOLDEN / "kipp-demo-bf16.json").read_text())
    assert hashlib.sha256(artifact.read_bytes()).hexdigest() == manifest["artifact_sha256"]
    for kv_store, bound in (("bf16", 5e-5), ("f32", 1e-9)):
        for case in manifest["cases"]:
            ids = case["ids"]
            step = [item(ids, blocks=scrambled_blocks(len(ids), 8), want="last")]
            (result,) = run_steps(artifact, [step], kv_blocks=8, kv_store=kv_store)
            expected = np.load(GOLDEN / case["file"])
            assert result[LOGITS][0].argmax() == expected.argmax()
            assert nmse(result[LOGITS][0], expected) <= bound
