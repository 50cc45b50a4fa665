"""How fast kvquant is, from its Google Benchmark program: the speed region of src/kvquant/README.md."""

from __future__ import annotations

import json
import pathlib
import platform
import re
import subprocess

# Targets, one core.
QUANTIZE_TARGET = 1e9  # bytes of FP32 in a second, int8 and int4
DEQUANTIZE_TARGET = 0.6  # of the speed of writing the FP32 output alone

VARIANTS = {
    "int8": "int8",
    "int4": "int4",
    "int8_hadamard": "int8, rotated",
    "int4_hadamard": "int4, rotated",
    "int8_channel": "int8, per channel",
}
HELD_TO_TARGETS = ("int8", "int4")


class Speeds:
    """Bytes of FP32 a second by name, each the median of some runs, and Highway's name for the instruction set."""

    def __init__(self, report: dict) -> None:
        self.target = report["context"]["kvquant_target"]
        self.figures = {
            run["run_name"]: run["bytes_per_second"]
            for run in report["benchmarks"]
            if run.get("aggregate_name", "median") == "median"
        }
        for working_set in ("cache", "memory"):
            self.figures[f"write/{working_set}"] = max(
                self.figures[f"write_{how}/{working_set}"] for how in ("memset", "streaming")
            )

    def share(self, name: str, working_set: str) -> float:
        """Of the speed of writing alone; of both ways to write there are, the faster one."""
        return self.figures[name] / self.figures[f"write/{working_set}"]


def measure(bench: pathlib.Path, repetitions: int = 5) -> Speeds:
    """By the processor time of each run, so that a neighbour costs less than it takes."""
    command = [
        bench, "--benchmark_format=json", "--benchmark_min_time=0.1", f"--benchmark_repetitions={repetitions}",
        "--benchmark_report_aggregates_only=true", "--benchmark_filter=-oracle",
    ]  # fmt: skip
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return Speeds(json.loads(done.stdout))


def read(report: pathlib.Path) -> Speeds:
    """What the benchmark wrote with --benchmark_format=json, as measure() runs it."""
    return Speeds(json.loads(report.read_text(encoding="utf-8")))


def processor() -> str:
    try:
        names = re.findall(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def gigabytes(speed: float) -> str:
    return f"{speed / 1e9:.1f}"


def speed_table(speeds: Speeds, wrong: list[str]) -> str:
    """Targets that are missed are added to `wrong`."""
    figures = speeds.figures
    rows = []
    for variant, title in VARIANTS.items():
        name = f"quantize_append/{variant}"
        cache, memory = (figures[f"{name}/{place}/simd"] for place in ("cache", "memory"))
        met = min(cache, memory) >= QUANTIZE_TARGET
        if variant in HELD_TO_TARGETS and not met:
            wrong.append(f"{name}: {min(cache, memory):.3g} bytes a second are less than {QUANTIZE_TARGET:.3g}")
        outcome = ("met" if met else "**missed**") if variant in HELD_TO_TARGETS else ""
        share = f"{speeds.share(f'{name}/memory/simd', 'memory'):.0%}"
        rows.append([f"quantize_append, {title}", gigabytes(cache), gigabytes(memory), "", share, outcome])
    for variant, title in VARIANTS.items():
        for width in ("int8", "int4", "int2"):
            name = f"dequantize/{variant}_at_{width}"
            if f"{name}/cache/simd" not in figures:
                continue
            places = (f"{name}/cache/simd", f"{name}/memory/simd", f"{name}/memory/simd_streaming")
            share = max(speeds.share(place, "memory") for place in places[1:])
            met = share >= DEQUANTIZE_TARGET
            if variant in HELD_TO_TARGETS and not met:
                wrong.append(f"{name}: {share:.0%} of the speed of writing is less than {DEQUANTIZE_TARGET:.0%}")
            outcome = ("met" if met else "**missed**") if variant in HELD_TO_TARGETS else ""
            cells = [gigabytes(figures[place]) for place in places]
            rows.append([f"dequantize, {title}, at {width}", *cells, f"{share:.0%}", outcome])
    cells = [gigabytes(figures[f"{name}/cache"]) for name in ("write", "copy_read_and_written")]
    beyond = [gigabytes(figures[f"{name}/memory"]) for name in ("write", "copy_read_and_written")]
    rows.append(["writing alone (the faster of memset and streaming stores)", cells[0], beyond[0], "", "", ""])
    rows.append(["memcpy, read and written bytes both counted", cells[1], beyond[1], "", "", ""])
    columns = ["GB of FP32 a second", "cache", "memory", "memory, streaming", "of writing", "target"]
    rule = ["---"] + ["---:"] * (len(columns) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [columns, rule, *rows])


def speed_region(measured: list[tuple[str, Speeds]], wrong: list[str]) -> str:
    """One table for each processor. Targets that are missed are added to `wrong`."""
    tables = []
    for name, speeds in measured:
        missed: list[str] = []
        tables.append(f"{name}, instruction set {speeds.target} in Highway's words:\n\n{speed_table(speeds, missed)}")
        wrong += [f"{name}: {what}" for what in missed]
    both = "\n\n".join(tables)
    return f"""\
Measured by `./dev kvquant` in kipp's repository, one core, medians of five runs. Counted are bytes of FP32: the input of
`quantize_append`, the output of `dequantize`. "Cache" is one block over and over, "memory" far more of them than any
cache holds, "streaming" the same with `CpuSimdBackend::Stores::streaming`. The share is of writing as many bytes of FP32
to memory and nothing else, by the faster of memset and streaming stores; for `dequantize`, of its own faster way. Targets:
quantize int8 and int4 at {QUANTIZE_TARGET / 1e9:g} GB a second or more, dequantize them at {DEQUANTIZE_TARGET:.0%} of writing or more.

{both}"""
