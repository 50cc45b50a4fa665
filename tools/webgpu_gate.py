#!/usr/bin/env python3
"""Tests, gates and speeds of the backend `webgpu` beside `reference` and `cpu`. tools/webgpu_gate.sh runs it where there is
a GPU; `--backend cpu` goes the same way anywhere.

Figures are appended to OUT/*.csv the moment they are there. Each part has a limit in seconds; one that needs longer is
named and the next begins. Gates and benchmarks are those of tools/device_gate.py; beside them

- tests: every test program of the backend, of src/gpu and of kvquant's WebGPU code, on this machine's GPU;
- agreement: what `cpu` writes greedily, predicted by the backend token by token over its own cache: the share of positions
  at which both find the same token likeliest, and the divergence (`kipp perplexity`); bound 0.99;
- targets: decode as a share of the bandwidth of copies, `--kv tiered` beside BF16 at 16,384 positions, prompts beside `cpu`.

Exit code 1 when a test or a gate failed; targets are reported as met or missed.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import device_gate
from device_gate import Run, Stopped, artifact, bench
from probe import build_folder
from svg_chart import Curve, Panel, log_chart

AGREE = 0.99
PROMPTS = ["Once upon a time", "The old man said", "In the morning", "There was a small boat"]
device_gate.COLUMNS |= {
    "tests": ["test", "seconds", "outcome"],
    "agreement": ["model", "scheme", "positions", "same", "worst_kl", "outcome"],
    "targets": ["what", "measured", "target", "outcome"],
}


def tests(run: Run) -> None:
    folder = build_folder() / "tests"
    names = sorted(path.name for pattern in ("gpu_*_test", "webgpu_*_test", "kvquant_wgpu_*_test") for path in folder.glob(pattern))
    if not names:
        raise RuntimeError(f"expected test programs in {folder}, found none")
    for name in names:
        begin = time.monotonic()
        done = subprocess.run([folder / name, "--gtest_brief=1"], capture_output=True, text=True,
                              timeout=run.seconds_left())  # fmt: skip
        if done.returncode != 0:
            (run.out / f"{name}.log").write_text(done.stdout + done.stderr)
        run.failed += done.returncode != 0
        run.add("tests", name, f"{time.monotonic() - begin:.1f}", "pass" if done.returncode == 0 else "FAIL")


def said(run: Run, *words: object) -> str:
    done = subprocess.run([build_folder() / "kipp", *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=run.seconds_left())  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"kipp {words[0]}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done.stdout


def agreement(run: Run, checkpoint: str, scheme: str, tokens: int = 200) -> None:
    path = artifact(run, checkpoint, scheme)
    model = ["--model", path, "--allow-synthetic"]
    positions, same, worst = 0, 0.0, 0.0
    for prompt in PROMPTS:
        told = said(run, "run", *model, "--backend", "cpu", "--prompt", prompt, "--temperature", 0, "--max-tokens", tokens,
                    "--json")  # fmt: skip
        ids, logits = run.work / "ids.json", run.work / "logits"
        ids.write_text(json.dumps(json.loads(told)["tokens"]))
        words = ["perplexity", *model, "--tokens", ids, "--pseudo-decode"]
        said(run, *words, "--backend", "cpu", "--save-logits", logits)
        found = json.loads(said(run, *words, "--backend", run.backend, "--against", logits, "--json"))
        positions += found["tokens"]
        same += found["kl"]["same_top"] * found["tokens"]
        worst = max(worst, found["kl"]["max"])
    passed = positions > 0 and same >= AGREE * positions
    run.failed += not passed
    run.add("agreement", checkpoint, scheme, positions, f"{same / max(positions, 1):.4f}", f"{worst:.2e}",
            "pass" if passed else "FAIL")  # fmt: skip


def on_cpu(run: Run, checkpoint: str, scheme: str, *flags: object) -> None:
    bench(dataclasses.replace(run, backend="cpu"), checkpoint, scheme, *flags, mode="cpu")


def targets(run: Run, small: str, large: str, deep: int, prompt: int) -> None:
    """Of what was measured; a target whose figures are missing is missing too."""
    path = run.out / "bench.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []

    def figure(column: str, model: str, scheme: str, mode: str, test: str, tokens: int | None, depth: int) -> float | None:
        for row in rows:
            here = (row["model"], row["scheme"], row["mode"], row["test"], int(row["depth"]), int(row["batch"]))
            if here == (model, scheme, mode, test, depth, 1) and tokens in (None, int(row["tokens"])) and row[column]:
                return float(row[column])
        return None

    def judge(what: str, measured: float | None, target: float) -> None:
        if measured is not None:
            run.add("targets", what, f"{measured:.3f}", f"{target:g}", "met" if measured >= target else "MISSED")

    for scheme in ("q8_0", "bf16"):
        judge(f"decode of {large} {scheme}, share of copy bandwidth",
              figure("share", large, scheme, "deterministic", "decode", None, 0), 0.5)  # fmt: skip
    speed = ("tokens_per_second", small, "bf16")
    plain, tiered = (figure(*speed, mode, "decode", None, deep) for mode in ("deterministic", "kv tiered"))
    judge(f"decode of {small} at {deep}, tiered over bf16", tiered / plain if tiered and plain else None, 1.2)
    ours, cpu = (figure(*speed, mode, "prefill", prompt, 0) for mode in ("deterministic", "cpu"))
    judge(f"prefill of {prompt}, {small}, times cpu", ours / cpu if ours and cpu else None, 5)


def plan(small: str, large: str) -> list[tuple[str, float, object]]:
    """Names, limits in seconds and functions of a Run, the most valuable first."""
    tiny = small.startswith("tiny")
    deep, prompt, tokens = (64, 64, 8) if tiny else (16384, 512, 64)
    prompts = str(prompt) if tiny else f"{prompt},2048"
    one = ("--decode", tokens, "--batch", 1)
    steps: list[tuple[str, float, object]] = []

    def add(name: str, limit: float, function: object, *arguments: object, **named: object) -> None:
        steps.append((name, limit, lambda run: function(run, *arguments, **named)))

    add("tests", 150, tests)
    if not tiny:
        add("gates of the small checkpoints", 90, device_gate.small_gates)
    add("agreement of kipp-demo", 60, agreement, "kipp-demo", "bf16", 20 if tiny else 200)
    for scheme in ("q8_0", "bf16"):
        add(f"bench of {large} {scheme}", 90, bench, large, scheme, "--prefill", prompts, *one, "--depth", f"0,{deep}")
    add(f"bench of {small} bf16", 60, bench, small, "bf16", "--prefill", prompts, *one, "--depth", f"0,{deep}")
    add(f"bench of {small} bf16, tiered", 60, bench, small, "bf16", "--prefill", 0, *one, "--depth", deep, "--batch-depth", deep,
        "--kv", "tiered", mode="kv tiered")  # fmt: skip
    add(f"bench of {small} on cpu", 60, on_cpu, small, "bf16", "--prefill", prompt, "--decode", 0, "--depth", 0)
    for scheme in ("bf16", "q8_0"):
        add(f"gate of {small} {scheme}", 60, device_gate.large_gate, small, scheme)
    add(f"agreement of {small}", 90, agreement, small, "bf16", 20 if tiny else 100)
    for scheme in ("q8_0", "affine4_gs32", "scale4_gs32"):
        add(f"bench of {small} {scheme}", 60, bench, small, scheme, "--prefill", prompts, *one, "--depth", f"0,{deep}")
    add("targets", 5, targets, small, large, deep, prompt)
    return steps


def table(out: pathlib.Path) -> str:
    lines = []
    for name in ("tests", "agreement", "targets"):
        path = out / f"{name}.csv"
        rows = list(csv.reader(path.open())) if path.exists() else []
        for at, row in enumerate(rows):
            lines.append("| " + " | ".join(row) + " |")
            if at == 0:
                lines.append("| --- " * len(row) + "|")
        lines += [""] if rows else []
    return "\n".join([*lines, device_gate.table(out)])


def chart(out: pathlib.Path) -> str:
    """Decoding and reading prompts by depth, one curve for each checkpoint and scheme, as SVG."""
    rows = list(csv.DictReader((out / "bench.csv").open()))
    rows.sort(key=lambda row: row["mode"] == "kv tiered")  # which was not measured with prompts
    depths = sorted({int(row["depth"]) for row in rows})
    names = {"deterministic": "", "kv tiered": ", tiered"}

    def panel(test: str) -> Panel:
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row["test"] == test and row["mode"] in names and row["batch"] == "1" and row["tokens"] in ("64", "512"):
                name = f"{row['model'].removeprefix('qwen3-')} {row['scheme']}{names[row['mode']]}"
                curves.setdefault(name, []).append((float(depths.index(int(row["depth"]))), float(row["tokens_per_second"])))
        return Panel(f"{test}, tokens/s", [Curve(name, points) for name, points in curves.items()])

    return log_chart("webgpu by depth", "positions cached before", [panel("decode"), panel("prefill")], [str(d) for d in depths])


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="webgpu")
    parser.add_argument("--small", default="qwen3-0.6b", help="a shape to measure and to compare")
    parser.add_argument("--large", default="qwen3-1.7b", help="a shape to measure")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a folder for what is measured")
    parser.add_argument("--work", type=pathlib.Path, help="a folder for model files, kept; default: one that goes again")
    parser.add_argument("--plot", type=pathlib.Path, help="draw what OUT has into this SVG and measure nothing")
    arguments = parser.parse_args()
    if arguments.plot:
        arguments.plot.write_text(chart(arguments.out))
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, stop)
    left_out: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kipp-webgpu-") as folder:
        work = arguments.work or pathlib.Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        ends = time.monotonic() + 60 * arguments.minutes
        run = Run(arguments.backend, arguments.out, work, ends)
        steps = plan(arguments.small, arguments.large)
        for name, limit, function in steps:
            begin = time.monotonic()
            # Judging costs nothing and comes last.
            run.ends = begin + limit if name == "targets" else min(ends, begin + limit)
            try:
                run.seconds_left()
                function(run)
            except (Stopped, subprocess.TimeoutExpired):
                left_out.append(f"{name} (limit {limit:g} s)" if time.monotonic() < ends else name)
            except KeyboardInterrupt:
                left_out.append(name + " and what follows")
                break
            except (RuntimeError, subprocess.CalledProcessError, SystemExit) as error:
                run.failed += 1
                run.add("times", f"FAILED: {name}: {' '.join(str(error).split())}", "", "")
            print(f"-- {name}: {time.monotonic() - begin:.1f} s", flush=True)
    print("\n" + table(arguments.out))
    if left_out:
        print("\nstopped before the end of: " + "; ".join(left_out))
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
