#!/usr/bin/env python3
"""Gates and benchmarks of a backend, and the table of what they found. tools/device_gate.sh runs it where there is a GPU;
`--backend cpu` goes the same way anywhere.

Every figure is appended to OUT/gates.csv, OUT/bench.csv or OUT/times.csv the moment it is there, so that what was
measured before somebody stopped it, or before --minutes were over, stays; what was left out is named. Shares are those
of OUT/ceilings.csv (tools/device_ceilings.cu), where that was measured: bytes of a decoded step over the bandwidth of
reading, operations of a prompt over the fastest BF16 product. Exit code 1 when a gate failed.

Gates: kipp-demo and the tiny twins against `reference`, larger twins against `cpu`, which is held to `reference` on any
machine; bound: NMSE 1e-4 at every position, and the same arg max but for a tie closer than the largest difference of
any logit. In deterministic mode, the default of kipp, every way of cutting the same work: bit-equal.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from load_client import Process, stream
from probe import LOGITS, build_folder, item, nmse, run_steps

BOUND = 1e-4
SCHEMES = ["bf16", "q8_0", "affine4_gs32", "scale4_gs32"]
TINY = ["kipp-demo", "tiny-tied", "tiny-untied"]
SEED = 7
COLUMNS = {
    "gates": ["checkpoint", "scheme", "mode", "against", "gate", "positions", "worst_nmse", "arg_max", "outcome"],
    "bench": ["model", "scheme", "mode", "test", "tokens", "depth", "batch", "tokens_per_second", "least", "most",
              "gb_per_second", "tflops", "share"],
    "times": ["what", "value", "unit"],
}  # fmt: skip


class Stopped(Exception):
    """Somebody asked to stop, or the time is over."""


@dataclass
class Run:
    backend: str
    out: pathlib.Path
    work: pathlib.Path
    ends: float  # as time.monotonic() counts
    left_out: list[str] = field(default_factory=list)
    failed: int = 0

    def add(self, table: str, *cells: object) -> None:
        path = self.out / f"{table}.csv"
        fresh = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow(COLUMNS[table])
            writer.writerow(cells)
        print(f"{table}: " + ", ".join(str(cell) for cell in cells), flush=True)

    def seconds_left(self) -> float:
        left = self.ends - time.monotonic()
        if left <= 0:
            raise Stopped
        return left

    def kipp(self, *words: object) -> float:
        """Seconds it took."""
        begin = time.monotonic()
        done = subprocess.run([build_folder() / "kipp", *map(str, words)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=self.seconds_left())  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"kipp {words[0]}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        return time.monotonic() - begin


def artifact(run: Run, checkpoint: str, scheme: str) -> pathlib.Path:
    """The model file of a twin or of the demo checkpoint, made once."""
    path = run.work / f"{checkpoint}-{scheme}.gguf"
    if path.exists():
        return path
    part = path.with_suffix(f".{os.getpid()}.part")
    if checkpoint == "kipp-demo" and scheme == "bf16":
        home = run.work / "home"  # where kipp unpacks it
        subprocess.run([build_folder() / "kipp", "run", "--backend", "cpu", "--prompt", "x", "--max-tokens", "1"], check=True,
                       capture_output=True, env=os.environ | {"KIPP_HOME": str(home)})  # fmt: skip
        (found,) = [p for p in home.rglob("*.gguf")]
        found.rename(path)
        return path
    if checkpoint == "kipp-demo":
        run.kipp("quantize", "--scheme", scheme, artifact(run, checkpoint, "bf16"), part)
    else:
        shape = "--shape" if checkpoint.startswith("tiny") else "--checkpoint"
        run.kipp("synthesize", shape, checkpoint, "--seed", SEED, "--scheme", scheme, "--out", part)
    part.rename(path)
    return path


# --- gates ---


def ways(tokens: list[int], decode_from: int) -> tuple[list[list[dict]], dict[str, list[tuple[int, int, int]]]]:
    """Steps that evaluate a sequence whole and cut in other ways, and (step, row, position) of each way's logits, which
    begin at `decode_from`, past the middle."""
    n = len(tokens)
    per_table = -(-n // 32)
    ids = random.Random(3).sample(range(3 * per_table), 3 * per_table)
    tables = [ids[i * per_table : (i + 1) * per_table] for i in range(3)]
    steps: list[list[dict]] = []
    found: dict[str, list[tuple[int, int, int]]] = {}

    def evaluate(name: str, *items: dict, row: int = 0, pos: int = 0, rows: int = 0) -> None:
        found.setdefault(name, []).extend((len(steps), row + i, pos + i) for i in range(rows))
        steps.append(list(items))

    tail = n - decode_from  # positions whose logits are compared
    evaluate("prefill", item(tokens[:decode_from], blocks=tables[0], want="none"))
    evaluate("prefill", item(tokens[decode_from:], pos=decode_from, blocks=tables[0]), pos=decode_from, rows=tail)
    evaluate("whole", item(tokens, blocks=tables[1], want="last"), pos=n - 1, rows=1)
    evaluate("decode", item(tokens[:decode_from], blocks=tables[1], want="none"))
    for pos in range(decode_from, n):
        evaluate("decode", item(tokens[pos : pos + 1], pos=pos, blocks=tables[1]), pos=pos, rows=1)
    keep = n // 2
    steps.append([item(tokens[::-1][: n - keep], pos=keep, blocks=tables[1], want="none")])
    steps.append([item(tokens[keep:decode_from], pos=keep, blocks=tables[1], want="none")])
    evaluate("truncated and resumed", item(tokens[decode_from:], pos=decode_from, blocks=tables[1]), pos=decode_from,
             rows=tail)  # fmt: skip
    for begin in range(0, decode_from, 7):
        part = tokens[begin : min(begin + 7, decode_from)]
        steps.append([item([begin + 1] * 3, pos=begin // 7 * 3, seq=8, blocks=tables[0], want="none"),
                      item(part, pos=begin, seq=9, blocks=tables[2], want="none")])  # fmt: skip
    beside = item([5], pos=-(-decode_from // 7) * 3, seq=8, blocks=tables[0])
    evaluate("batched", beside, item(tokens[decode_from:], pos=decode_from, seq=9, blocks=tables[2]), row=1,
             pos=decode_from, rows=tail)  # fmt: skip
    return steps, found


def gate(run: Run, checkpoint: str, scheme: str, against: str, tokens: list[int], decode_from: int) -> None:
    path = artifact(run, checkpoint, scheme)
    steps, found = ways(tokens, decode_from)
    blocks = 3 * -(-len(tokens) // 32)
    truth = run_steps(path, steps, kv_blocks=blocks, backend=against, timeout=run.seconds_left())
    for mode in ("fast", "deterministic"):
        results = run_steps(path, steps, kv_blocks=blocks, backend=run.backend, deterministic=mode == "deterministic",
                            timeout=run.seconds_left())  # fmt: skip
        for name, way in found.items():
            errors, differ = [], 0
            for step, row, _ in way:
                a, b = results[step][LOGITS][row], truth[step][LOGITS][row]
                errors.append(nmse(a, b))
                differ += float(b.max() - b[a.argmax()]) > float(np.abs(a - b).max())
            passed = differ == 0 and max(errors) <= BOUND  # a NaN fails
            record(run, passed, checkpoint, scheme, mode, against, name, len(way), f"{max(errors):.1e}",
                   "same" if differ == 0 else f"differs at {differ}")  # fmt: skip
        if mode == "deterministic":
            whole = {pos: results[step][LOGITS][row] for step, row, pos in found["prefill"]}
            other = [(name, pos, results[step][LOGITS][row]) for name, way in found.items() for step, row, pos in way]
            bad = sorted({name for name, pos, row in other if row.tobytes() != whole[pos].tobytes()})
            record(run, not bad, checkpoint, scheme, mode, run.backend, "any cut, bit for bit", len(other), "",
                   ", ".join(bad) if bad else "same bits")  # fmt: skip


def record(run: Run, passed: bool, *cells: object) -> None:
    run.failed += not passed
    run.add("gates", *cells, "pass" if passed else "FAIL")


def small_gates(run: Run) -> None:
    tokens = random.Random(5).choices(range(151643), k=76)
    jobs = [(checkpoint, scheme) for checkpoint in TINY for scheme in SCHEMES]
    for checkpoint, scheme in jobs:
        artifact(run, checkpoint, scheme)
    with ThreadPoolExecutor(max(1, min(6, (os.cpu_count() or 2) // 2))) as pool:
        for done in [pool.submit(gate, run, checkpoint, scheme, "reference", tokens, 68) for checkpoint, scheme in jobs]:
            done.result()


def large_gate(run: Run, checkpoint: str, scheme: str) -> None:
    gate(run, checkpoint, scheme, "cpu", random.Random(6).choices(range(151643), k=300), 290)


# --- benchmarks ---


def ceilings(out: pathlib.Path) -> dict[str, float]:
    path = out / "ceilings.csv"
    if not path.exists():
        return {}
    found = {}
    for name, value, unit in csv.reader(path.open()):
        if unit.endswith("/s"):
            found[name] = float(value) * {"T": 1e12, "G": 1e9}[unit[0]]
    return found


def bench(run: Run, checkpoint: str, scheme: str, *flags: object, mode: str = "deterministic") -> None:
    path = artifact(run, checkpoint, scheme)
    report = run.work / "bench.json"
    report.unlink(missing_ok=True)
    words = ["bench", "--model", path, "--allow-synthetic", "--backend", run.backend, "--json", report, *flags]
    run.kipp(*words, "--fast" if mode == "fast" else "--deterministic")
    limits = ceilings(run.out)
    product = max((rate for name, rate in limits.items() if name.startswith("product")), default=0)
    for model in json.loads(report.read_text())["models"]:
        run.add("times", f"load of {checkpoint} {scheme}", f"{model['load_seconds']:.2f}", "s")
        for result in model["results"]:
            decode = result["test"] == "decode"
            limit = max(limits.get("read", 0), limits.get("copy", 0)) if decode else product
            rate = result["bytes_per_second" if decode else "flops_per_second"]
            run.add("bench", checkpoint, scheme, mode, result["test"], result["tokens"], result["depth"], result["batch"],
                    *(f"{result[name]:.1f}" for name in ("tokens_per_second", "tokens_per_second_min",
                                                         "tokens_per_second_max")),
                    f"{result['bytes_per_second'] / 1e9:.1f}", f"{result['flops_per_second'] / 1e12:.2f}",
                    f"{rate / limit:.3f}" if limit else "")  # fmt: skip


def first_token(run: Run, checkpoint: str, scheme: str) -> None:
    """From the start of the process, the artifact being in the page cache."""
    path = artifact(run, checkpoint, scheme)
    words = ("run", "--model", path, "--allow-synthetic", "--backend", run.backend, "--prompt", "Once", "--max-tokens", 1)
    took = [run.kipp(*words) for _ in range(3)]
    run.add("times", f"process start to first token, {checkpoint} {scheme}", f"{min(took):.2f}", "s")


def prompt(words: int, seed: int) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice("the sea boat fox hill wind rain stone river night lamp bread".split()) for _ in range(words))


async def ask(port: int, words: int, seed: int, tokens: int) -> object:
    body = {"prompt": prompt(words, seed), "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    result = await stream(port, body)
    if result.status != 200 or result.error or not result.times:
        raise RuntimeError(f"kipp serve: a stream ended with status {result.status} {result.error}")
    return result


def serve(run: Run, checkpoint: str, scheme: str, streams: int = 64, tokens: int = 128) -> None:
    path = artifact(run, checkpoint, scheme)
    command = [str(build_folder() / "kipp"), "serve", "--port", "0", "--access-log", "off", "--model", str(path),
               "--allow-synthetic", "--backend", run.backend, "--max-sequences", str(streams), "--context", "1024",
               "--kv-memory", f"{max(1, streams // 4)}GiB"]  # fmt: skip
    with Process(command, run.work / "serve.log", patience=min(120, run.seconds_left())) as server:
        asyncio.run(ask(server.port, 230, 1, 4))
        firsts = [asyncio.run(ask(server.port, 230, seed, 4)).first for seed in range(2, 9)]
        run.add("times", f"server, first of 230 tokens, {checkpoint} {scheme}", f"{statistics.median(firsts) * 1e3:.2f}", "ms")

        async def together() -> float:
            begin = time.perf_counter()
            await asyncio.gather(*(ask(server.port, 256, 100 + i, tokens) for i in range(streams)))
            return time.perf_counter() - begin

        took = asyncio.run(together())
        run.add("times", f"server, {streams} streams of 256 + {tokens}, {checkpoint} {scheme}",
                f"{streams * tokens / took:.0f}", "tok/s")  # fmt: skip


# --- what is run ---


def plan(checkpoints: list[str]) -> list[tuple[str, object]]:
    """Names and functions of a Run, the most valuable first."""
    small = next((c for c in checkpoints if "0.6b" in c or c.startswith("tiny")), None)
    large = [c for c in checkpoints if c != small]
    steps: list[tuple[str, object]] = [("gates of the small checkpoints", small_gates)] if TINY else []

    def add(name: str, function: object, *arguments: object, **named: object) -> None:
        steps.append((name, lambda run: function(run, *arguments, **named)))

    prompts = "128" if small and small.startswith("tiny") else "2048,8192"
    one = ("--depth", 0, "--batch", 1)
    if small:
        for scheme in ("bf16", "q8_0", "scale4_gs32"):
            add(f"gate of {small} {scheme}", large_gate, small, scheme)
        add(f"bench of {small}", bench, small, "bf16", "--prefill", prompts, "--decode", 64, *one)
        add(f"bench of {small}, fast", bench, small, "bf16", "--prefill", prompts, "--decode", 64, *one,
            mode="fast")  # fmt: skip
    for checkpoint in large:
        add(f"bench of {checkpoint} bf16", bench, checkpoint, "bf16", "--prefill", prompts, "--decode", 64, "--depth", 0,
            "--batch", "1,8,64", "--batch-depth", 256)  # fmt: skip
        add(f"first token of {checkpoint}", first_token, checkpoint, "bf16")
        add(f"server with {checkpoint}", serve, checkpoint, "bf16")
        add(f"bench of {checkpoint} bf16, fast", bench, checkpoint, "bf16", "--prefill", 2048, "--decode", 32, *one,
            mode="fast")  # fmt: skip
        add(f"bench of {checkpoint} q8_0", bench, checkpoint, "q8_0", "--prefill", 2048, "--decode", 64, "--depth",
            "0,32768", "--batch", 1)  # fmt: skip
        add(f"bench of {checkpoint} scale4_gs32", bench, checkpoint, "scale4_gs32", "--prefill", 2048, "--decode", 64, *one)
    if small:
        add(f"server with {small}", serve, small, "bf16", *((4, 8) if small.startswith("tiny") else ()))
    return steps


def table(out: pathlib.Path) -> str:
    """Short: the gates by checkpoint, every measurement in a line."""
    lines = []
    for name in ("gates", "bench", "times"):
        path = out / f"{name}.csv"
        rows = list(csv.DictReader(path.open())) if path.exists() else []
        if name == "gates" and rows:
            lines.append("| gate | rows | worst NMSE | failed |\n| --- | ---: | ---: | ---: |")
            groups: dict[tuple[str, ...], list[dict]] = {}
            for row in rows:
                groups.setdefault((row["checkpoint"], row["scheme"], row["mode"]), []).append(row)
            for key, found in groups.items():
                worst = max((float(row["worst_nmse"]) for row in found if row["worst_nmse"]), default=0)
                failed = sum(row["outcome"] != "pass" for row in found)
                lines.append(f"| {' '.join(key)} | {len(found)} | {worst:.1e} | {failed or 'none'} |")
        elif name == "bench" and rows:
            lines.append("\n| model | test | depth | batch | tok/s | GB/s | TFLOP/s | of ceiling |")
            lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
            for row in rows:
                mode = "" if row["mode"] == "deterministic" else f", {row['mode']}"
                share = f"{float(row['share']):.0%}" if row["share"] else "-"
                lines.append(f"| {row['model']} {row['scheme']}{mode} | {row['test']} {row['tokens']} | {row['depth']} "
                             f"| {row['batch']} | {row['tokens_per_second']} | {row['gb_per_second']} | {row['tflops']} "
                             f"| {share} |")  # fmt: skip
        elif rows:
            lines.append("\n| what | value |\n| --- | ---: |")
            lines += [f"| {row['what']} | {row['value']} {row['unit']} |" for row in rows]
    return "\n".join(lines)


def stop(*_: object) -> None:
    raise Stopped


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--checkpoint", action="append", help="a shape to measure; default: qwen3-0.6b and qwen3-8b")
    parser.add_argument("--no-small-gates", action="store_true", help="not kipp-demo and the tiny twins")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a folder for what is measured")
    parser.add_argument("--work", type=pathlib.Path, help="a folder for model files, kept; default: one that goes again")
    parser.add_argument("--table", action="store_true", help="print the table of --out and measure nothing")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        print(table(arguments.out))
        return 0
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if arguments.no_small_gates:
        TINY.clear()
    with tempfile.TemporaryDirectory(prefix="kipp-device-") as folder:
        work = arguments.work or pathlib.Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        run = Run(arguments.backend, arguments.out, work, time.monotonic() + 60 * arguments.minutes)
        steps = plan(arguments.checkpoint or ["qwen3-0.6b", "qwen3-8b"])
        try:
            for at, (name, function) in enumerate(steps):
                run.left_out = [left for left, _ in steps[at:]]
                begin = time.monotonic()
                try:
                    run.seconds_left()
                    function(run)
                except (RuntimeError, subprocess.CalledProcessError, SystemExit) as error:
                    run.failed += 1
                    run.add("times", f"FAILED: {name}: {' '.join(str(error).split())}", "", "")
                print(f"-- {name}: {time.monotonic() - begin:.1f} s", flush=True)
            run.left_out = []
        except (Stopped, subprocess.TimeoutExpired):
            pass
    print("\n" + table(arguments.out))
    if run.left_out:
        print("\nstopped before: " + "; ".join(run.left_out))
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
