#!/usr/bin/env python3
"""Runs `kipp bench` and draws what it measured.

    python3 tools/bench.py qwen3-0.6b.gguf qwen3-0.6b-q8_0.gguf --allow-synthetic
    python3 tools/bench.py --from docs/plots/bench.json     # draw again

Flags it does not know go to `kipp bench`. Writes bench.json, bench.csv and three charts into docs/plots: speed by
depth, the same as shares of what the machine can do, and the speed of many sequences together.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

from svg_chart import Curve, Panel, log_chart

ROOT = pathlib.Path(__file__).resolve().parents[1]

Results = list[dict]  # of one model, as in bench.json


def by_depth(results: Results, test: str) -> dict[int, dict]:
    """Of one sequence; of several prompt lengths the first."""
    found: dict[int, dict] = {}
    for result in results:
        if result["test"] == test and result["batch"] == 1:
            found.setdefault(result["depth"], result)
    return found


def by_batch(results: Results) -> dict[int, dict]:
    """At the depth that most batches were measured at."""
    decode = [result for result in results if result["test"] == "decode"]
    depths = [result["depth"] for result in decode if result["batch"] > 1]
    if not depths:
        return {}
    return {result["batch"]: result for result in decode if result["depth"] == depths[0]}


def panel(y_name: str, curves: dict[str, dict[int, dict]], places: list[int], field: str, scale: float = 1) -> Panel:
    drawn = []
    for name, results in curves.items():
        points = [(float(places.index(at)), results[at][field] * scale) for at in sorted(results)]
        drawn.append(Curve(name, points))
    return Panel(y_name, drawn)


def label(number: int) -> str:
    return f"{number // 1024}k" if number >= 1024 and number % 1024 == 0 else str(number)


def charts(report: dict) -> dict[str, str]:
    """File name -> SVG; a chart without figures is left out."""
    names = {model["model"] for model in report["models"]}
    only = names.pop() if len(names) == 1 else None  # named once, in the titles
    models = {
        model["scheme"] if only else f"{model['model']} {model['scheme']}": model["results"]
        for model in report["models"]
    }
    prefill = {name: found for name, results in models.items() if (found := by_depth(results, "prefill"))}
    decode = {name: found for name, results in models.items() if (found := by_depth(results, "decode"))}
    batches = {name: found for name, results in models.items() if (found := by_batch(results))}
    drawn = {}
    machine = f"{report['cpu']}, {report['models'][0]['threads']} threads"
    if only:
        machine = f"{only}, {machine}"
    if decode and prefill and decode.keys() == prefill.keys():
        depths = sorted({depth for found in (*decode.values(), *prefill.values()) for depth in found})
        ticks = [label(depth) for depth in depths]
        drawn["bench_depth.svg"] = log_chart(
            f"Speed by depth: {machine}",
            "positions cached before",
            [
                panel("decode, tokens/s", decode, depths, "tokens_per_second"),
                panel("prefill, tokens/s", prefill, depths, "tokens_per_second"),
            ],
            ticks,
        )
        # Of the processor's, where it is what computes.
        if all(result["share_of_read_bandwidth"] is not None for found in decode.values() for result in found.values()):
            drawn["bench_share.svg"] = log_chart(
                f"Shares of what the machine can do: {machine}",
                "positions cached before",
                [
                    panel("decode, % of read bandwidth", decode, depths, "share_of_read_bandwidth", 100),
                    panel("prefill, % of multiply-add peak", prefill, depths, "share_of_multiply_add_peak", 100),
                ],
                ticks,
            )
    if batches:
        sizes = sorted({size for found in batches.values() for size in found})
        drawn["bench_batch.svg"] = log_chart(
            f"Sequences side by side: {machine}",
            "sequences",
            [panel("decode, tokens/s of all", batches, sizes, "tokens_per_second")],
            [str(size) for size in sizes],
        )
    return drawn


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build"))
    parser.add_argument("models", nargs="*", metavar="MODEL", help="as `kipp bench --model`; none: the demo checkpoint")
    parser.add_argument("--kipp", type=pathlib.Path, default=build / "kipp")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "plots", help="folder to write into")
    parser.add_argument("--from", dest="report", type=pathlib.Path, help="draw this bench.json and measure nothing")
    arguments, flags = parser.parse_known_args()

    arguments.out.mkdir(parents=True, exist_ok=True)
    report = arguments.report
    if report is None:
        report = arguments.out / "bench.json"
        named = [word for model in arguments.models for word in ("--model", model)]
        files = ["--json", report, "--csv", arguments.out / "bench.csv"]
        code = subprocess.run([arguments.kipp, "bench", *named, *flags, *files]).returncode
        if code != 0:
            return code
    for name, svg in charts(json.loads(report.read_text())).items():
        (arguments.out / name).write_text(svg)
        print(f"wrote {arguments.out / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
