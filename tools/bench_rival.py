#!/usr/bin/env python3
"""Measures kipp beside llama.cpp on the same model files and prints a Markdown table.

    python3 tools/bench_rival.py --llama-bench ~/llama.cpp/build/bin/llama-bench --out rival qwen3-0.6b-*.gguf

Both read the same GGUF file, on as many threads. They run in turns, test by test and round by round, and who goes first
changes from round to round, so that a disturbance that lasts longer than a test favours nobody: the ratio is the
median of the ratios of the rounds. llama.cpp is measured with and without flash attention and counts with whichever
has the higher median. Run it on an idle machine: llama.cpp's threads spin, and one busy neighbour costs it a factor
of ten.

Shares: bytes of weights and cache per token over the machine's read bandwidth (decode), operations over its
multiply-add peak (prefill); both peaks are measured by `kipp bench` in the same round.

llama.cpp fills the depth by computing it, which takes minutes at 16,384; kipp writes random blocks (docs/MEASURING.md).
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Test:
    kind: str  # prefill or decode
    tokens: int
    depth: int


@dataclass
class Comparison:
    """One test of one model; tokens per second of every round."""

    model: str
    scheme: str
    kind: str
    tokens: int
    depth: int
    kipp: list[float] = field(default_factory=list)
    llama: dict[str, list[float]] = field(default_factory=dict)  # by flash attention: "0", "1"
    peak: list[float] = field(default_factory=list)  # tokens/s at which the share would be 1

    def llama_flash(self) -> str:
        return max(self.llama, key=lambda flash: statistics.median(self.llama[flash]))

    def llama_best(self) -> list[float]:
        return self.llama[self.llama_flash()]

    def ratios(self) -> list[float]:
        return [own / other for own, other in zip(self.kipp, self.llama_best())]

    def summary(self) -> dict:
        ratios = self.ratios()
        return {
            "model": self.model,
            "scheme": self.scheme,
            "test": self.kind,
            "tokens": self.tokens,
            "depth": self.depth,
            "rounds": len(ratios),
            "kipp": statistics.median(self.kipp),
            "llama": statistics.median(self.llama_best()),
            "llama_flash_attention": self.llama_flash(),
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "kipp_share": statistics.median(own / peak for own, peak in zip(self.kipp, self.peak)),
            "llama_share": statistics.median(other / peak for other, peak in zip(self.llama_best(), self.peak)),
        }


def run(command: list) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{pathlib.Path(command[0]).name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


class Kipp:
    def __init__(self, binary: pathlib.Path, threads: int, flags: list[str]):
        self.command = [binary, "bench", "--threads", threads, "--batch", 1, "--repetitions", 1, *flags]
        self.about: dict = {}

    def measure(self, model: pathlib.Path, test: Test) -> tuple[dict, dict]:
        """The model's entry of the report, and its one result."""
        lengths = {"prefill": ["--prefill", test.tokens, "--decode", 0], "decode": ["--prefill", 0, "--decode", test.tokens]}
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "bench.json"
            run([*self.command, "--model", model, "--depth", test.depth, *lengths[test.kind], "--batch-depth",
                 test.depth, "--json", out])  # fmt: skip
            report = json.loads(out.read_text())
        self.about = {key: report[key] for key in ("commit", "date", "cpu")}
        (entry,) = report["models"]
        (result,) = entry["results"]
        return entry, result


class Llama:
    def __init__(self, binary: pathlib.Path, threads: int, flash: str, flags: list[str]):
        self.command = [binary, "-t", threads, "-fa", flash, "-r", 1, "-o", "json", *flags]
        self.about: dict = {}

    def measure(self, model: pathlib.Path, test: Test) -> dict[str, float]:
        """Tokens per second by flash attention."""
        prompt, generated = (test.tokens, 0) if test.kind == "prefill" else (0, test.tokens)
        found = json.loads(run([*self.command, "-m", model, "-p", prompt, "-n", generated, "-d", test.depth]))
        for result in found:
            if (result["n_prompt"], result["n_gen"], result["n_depth"]) != (prompt, generated, test.depth):
                raise RuntimeError(f"llama-bench measured something else: {result['n_prompt']}, {result['n_gen']}")
        self.about = {"build": found[0]["build_commit"]}
        return {str(int(result["flash_attn"])): result["avg_ts"] for result in found}


def compare(kipp: Kipp, llama: Llama, models: list[pathlib.Path], tests: list[Test], rounds: int) -> list[Comparison]:
    comparisons: dict[tuple, Comparison] = {}
    for number in range(rounds):
        for model in models:
            for test in tests:
                theirs = llama.measure(model, test) if number % 2 == 1 else None
                entry, result = kipp.measure(model, test)
                theirs = theirs or llama.measure(model, test)
                key = (str(model), test)
                if key not in comparisons:
                    comparisons[key] = Comparison(entry["model"], entry["scheme"], test.kind, test.tokens, test.depth)
                found = comparisons[key]
                share = "share_of_read_bandwidth" if test.kind == "decode" else "share_of_multiply_add_peak"
                found.kipp.append(result["tokens_per_second"])
                found.peak.append(result["tokens_per_second"] / result[share])
                for flash, rate in theirs.items():
                    found.llama.setdefault(flash, []).append(rate)
                best = max(theirs.values())
                print(f"round {number + 1}: {entry['model']} {entry['scheme']} {test.kind} {test.tokens} at {test.depth}: "
                      f"kipp {found.kipp[-1]:.2f}, llama.cpp {best:.2f}", file=sys.stderr, flush=True)  # fmt: skip
    return list(comparisons.values())


def table(summaries: list[dict]) -> str:
    lines = [
        "| model | scheme | test | depth | kipp tok/s | llama.cpp tok/s | ratio | kipp, of peak | llama.cpp, of peak |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for s in summaries:
        lines.append(
            f"| {s['model']} | {s['scheme']} | {s['test']} {s['tokens']} | {s['depth']:,} | {s['kipp']:.1f} "
            f"| {s['llama']:.1f} | {s['ratio']:.2f} ({s['ratio_min']:.2f} to {s['ratio_max']:.2f}) "
            f"| {s['kipp_share']:.0%} | {s['llama_share']:.0%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build"))
    parser.add_argument("models", nargs="+", type=pathlib.Path, metavar="MODEL", help="a GGUF file of kipp's")
    parser.add_argument("--llama-bench", type=pathlib.Path, required=True)
    parser.add_argument("--kipp", type=pathlib.Path, default=build / "kipp")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prefill", type=int, default=512, help="tokens at depth 0; 0: not measured")
    parser.add_argument("--decode", type=int, default=128, help="tokens at every depth; 0: not measured")
    parser.add_argument("--depth", default="0,1024,4096,16384")
    parser.add_argument("--flash-attention", default="0,1", help="of llama.cpp: 0, 1 or both")
    parser.add_argument("--kipp-flag", action="append", default=[], help="one more word for `kipp bench`, repeatable")
    parser.add_argument("--llama-flag", action="append", default=[],
                        help="one more word for llama-bench, repeatable: --llama-flag=-ctk --llama-flag=q8_0")  # fmt: skip
    parser.add_argument("--out", type=pathlib.Path, help="write OUT.json, with every round, and OUT.csv")
    arguments = parser.parse_args()

    tests = [Test("prefill", arguments.prefill, 0)] if arguments.prefill else []
    if arguments.decode:
        tests += [Test("decode", arguments.decode, int(depth)) for depth in arguments.depth.split(",")]
    kipp = Kipp(arguments.kipp, arguments.threads, ["--allow-synthetic", *arguments.kipp_flag])
    llama = Llama(arguments.llama_bench, arguments.threads, arguments.flash_attention, arguments.llama_flag)
    comparisons = compare(kipp, llama, arguments.models, tests, arguments.rounds)
    summaries = [comparison.summary() for comparison in comparisons]
    if arguments.out:
        report = {
            "kipp": kipp.about,
            "llama": llama.about,
            "threads": arguments.threads,
            "summaries": summaries,
            "rounds": [asdict(comparison) for comparison in comparisons],
        }
        arguments.out.with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n")
        with open(arguments.out.with_suffix(".csv"), "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(summaries[0]))
            writer.writeheader()
            writer.writerows(summaries)
    print(f"{kipp.about['cpu']}, {arguments.threads} threads, kipp {kipp.about['commit']}, llama.cpp "
          f"{llama.about['build']}, {arguments.rounds} rounds, {kipp.about['date'][:10]}\n")  # fmt: skip
    print(table(summaries))


if __name__ == "__main__":
    main()
