#!/usr/bin/env python3
"""Measures what a tiered cache costs and brings, and rewrites the tables and plots of docs/KV.md: `./dev evidence`.

    python tools/evidence.py                                     # everything, on the demo checkpoint
    python tools/evidence.py bits recall                         # some parts; the others stay as they were
    python tools/evidence.py --model qwen3-0.6b --text book.txt --out /tmp/kv
    python tools/evidence.py speed --speed-model qwen3-0.6b-twin.gguf --allow-synthetic
    python tools/evidence.py --draw                              # tables and plots again, from what was measured

Parts: bits (arithmetic), floor, divergence, recall, sensitivity, speed; all but speed take half an hour of two quiet
cores. Figures are kept in docs/plots/kv_evidence.json, which the tables and plots are made of. Flags it does not know
go to kipp. Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from kv_arithmetic import BANDS, BLOCK, Policy, preset_words
from kvquant_report import markdown, replace_region
from probe import REPOSITORY, build_folder
from svg_chart import Curve, Panel, log_chart

sys.path.insert(0, str(REPOSITORY))

PARTS = ["bits", "floor", "divergence", "recall", "sensitivity", "speed"]
TIERED = ["int8", "tiered", "tiered-max"]  # presets beside bf16
CONTEXTS = [1024, 2048, 4096, 8192, 16384, 32768]
LAYERS = 28  # of the 0.6B and 1.7B shapes, for arithmetic; without `up` and `exempt` no policy depends on them
RECALL_RANGES = [(16, 64), (64, 256), (256, 1024), (1024, 2048), (2048, 4096), (6500, 7500)]  # tokens
WIDTHS = ["int8", "int4", "int2"]
NARROW = ["int4", "int2"]  # layer by layer

Figures = dict  # of one part, as in kv_evidence.json


class Kipp:
    """Runs the commands that measure; every run says what it runs."""

    def __init__(self, program: pathlib.Path, model: list[str], flags: list[str]) -> None:
        self.program, self.model, self.flags = program, model, flags

    def json(self, command: str, *arguments: object, backend: str | None = None) -> dict:
        """`backend` in place of the one that the flags name."""
        flags = self.flags
        if backend:
            named = [at for at, flag in enumerate(flags) if flag == "--backend"]
            flags = [flag for at, flag in enumerate(flags) if at not in named and at - 1 not in named]
            flags = [*flags, "--backend", backend]
        line = [str(self.program), command, *map(str, arguments), "--kv-unproven", *self.model, *flags]
        print("$ kipp", *line[1:], file=sys.stderr, flush=True)
        return json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout)

    def layers(self, checkpoint: str) -> int:
        """Of a model file, or of a checkpoint by its id."""
        file = [word for word in self.model[1:] if pathlib.Path(word).exists()]
        about = ["inspect", *file] if file else ["checkpoints"]
        out = subprocess.run([self.program, *about, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
        entries = [json.loads(out)] if file else json.loads(out)
        return next(one["config"]["num_hidden_layers"] for one in entries if file or one["id"] == checkpoint)


# --- measuring


def measure_bits() -> Figures:
    found: Figures = {"layers": LAYERS, "presets": {}}
    for name, words in preset_words().items():
        policy = Policy.parse(name)
        found["presets"][name] = {
            "words": words,
            "bits": {str(n): policy.bits(n, LAYERS) for n in CONTEXTS},
            "bytes": {str(n): policy.bytes(n, LAYERS) for n in CONTEXTS},
            "bands": {str(n): policy.band_bytes(n, LAYERS) for n in CONTEXTS},
        }
    return found


def divergence(report: dict) -> dict:
    keys = ("tokens", "perplexity", "against_perplexity", "kl")
    return {key: report[key] for key in keys} | {
        "by_position": [{key: bucket[key] for key in ("from", "to", "tokens", "kl")} for bucket in report["by_position"]]
    }


def measure_divergence(kipp: Kipp, args: argparse.Namespace) -> Figures:
    text = ["--file", args.text, "--limit", args.tokens, "--context", args.tokens, "--json"]
    reports = {
        name: kipp.json("perplexity", *text, "--kv", name, "--against-kv", "bf16") for name in ["bf16", *TIERED]
    }
    # Short, since a step for each token is slow; long enough for every band of every preset to be read.
    short = ["--file", args.text, "--limit", args.decoded, "--context", args.decoded, "--json", "--against-kv", "bf16"]
    same = {}
    for name in TIERED:
        chunks = kipp.json("perplexity", *short, "--kv", name)
        decoded = kipp.json("perplexity", *short, "--kv", name, "--pseudo-decode")
        same[name] = all(chunks[key] == decoded[key] for key in ("nll", "kl", "by_position"))
    any_report = reports["bf16"]
    return {
        "model": any_report["model"], "scheme": any_report["scheme"], "backend": any_report["backend"],
        "text": pathlib.Path(args.text).name, "tokens": any_report["text_tokens"], "decoded": args.decoded,
        "decoded_is_chunked": same,
        "presets": {name: divergence(report) for name, report in reports.items()},
    }  # fmt: skip


def measure_floor(kipp: Kipp, args: argparse.Namespace) -> Figures:
    """The same cache under other arithmetic: what two correct programs differ by."""
    text = ["--file", args.text, "--limit", args.floor_tokens, "--context", args.floor_tokens, "--json", "--kv", "bf16"]
    with tempfile.TemporaryDirectory() as folder:
        rows = pathlib.Path(folder) / "reference.logits"
        kipp.json("perplexity", *text, "--save-logits", rows, backend="reference")
        report = kipp.json("perplexity", *text, "--against", rows)
    return {key: report[key] for key in ("model", "scheme", "backend", "tokens", "kl")}


def recall_cases(count: int, context: int, form: str = "both") -> list[dict]:
    """`count` questions for each range of distances, from the seeds alone."""
    import zstandard
    from tokenizers import Tokenizer

    from tools.demo import recall

    packed = (REPOSITORY / "tests" / "data" / "tokenizer.instruct.json.zst").read_bytes()
    tokenizer = Tokenizer.from_str(zstandard.ZstdDecompressor().decompress(packed).decode())

    def tokens(text: str) -> int:
        return len(tokenizer.encode(text).ids)

    cases = []
    for low, high in RECALL_RANGES:
        for i in range(count):
            rng = random.Random(f"recall evidence {low} {i}")
            distance = int(math.exp(rng.uniform(math.log(low + 8), math.log(high))))
            shape = ("plain", "chat")[i % 2] if form == "both" else form
            case = recall.make_test(rng, distance, shape, ("list", "story")[i // 2 % 2], recall.story_filler, tokens)
            answer = case["answer"] + "<|im_end|>" if shape == "chat" else " " + case["answer"] + "\n"
            if tokens(case["prompt"] + answer) <= context:
                cases.append({"prompt": case["prompt"], "answer": answer, "range": [low, high]})
    return cases


def measure_recall(kipp: Kipp, args: argparse.Namespace) -> Figures:
    cases = recall_cases(args.questions, args.recall_context)
    found: Figures = {"presets": {}, "questions": args.questions}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cases.jsonl"
        path.write_text("".join(json.dumps(case) + "\n" for case in cases))
        for name in ["bf16", *TIERED]:
            report = kipp.json("recall", "--cases", path, "--kv", name, "--json")
            found["model"], found["scheme"] = report["model"], report["scheme"]
            by_range = []
            for low, high in RECALL_RANGES:
                asked = [out for case, out in zip(cases, report["cases"], strict=True) if case["range"] == [low, high]]
                by_range.append({
                    "from": low, "to": high, "asked": len(asked), "given": sum(one["given"] for one in asked),
                    "nll": sum(one["nll"] for one in asked) / max(len(asked), 1),
                })  # fmt: skip
            found["presets"][name] = by_range
    return found


def one_width(side: str, width: str, rotate: bool = True, only: int | None = None, layers: int = 0) -> str:
    """Every block but the query's own read at `width` on one side, the other side BF16; in one layer only."""
    words = f"far={width}/bf16" if side == "K" else f"far=bf16/{width}"
    if not rotate:
        words += ",rotate=off"
    if only is not None:
        words += ",exempt=" + "+".join(str(layer) for layer in range(layers) if layer != only)
    return words


def measure_sensitivity(kipp: Kipp, args: argparse.Namespace) -> Figures:
    n = args.sensitivity_tokens
    text = ["--file", args.text, "--limit", n, "--context", n, "--json", "--against-kv", "bf16"]

    def report(words: str) -> dict:
        return kipp.json("perplexity", *text, "--kv", words)

    def mean(words: str) -> dict:
        kl = report(words)["kl"]
        return {"kl": kl["mean"], "same_top": kl["same_top"]}

    model = report("bf16")["model"]
    layers = kipp.layers(model)
    whole = {
        f"{side} {width} {'rotated' if rotate else 'plain'}": mean(one_width(side, width, rotate))
        for side in "KV" for width in WIDTHS for rotate in (True, False)
    }  # fmt: skip
    by_layer = {
        f"{side} {width}": [mean(one_width(side, width, only=layer, layers=layers)) for layer in range(layers)]
        for side in "KV" for width in NARROW
    }  # fmt: skip
    return {"model": model, "tokens": n, "layers": layers, "whole": whole, "by_layer": by_layer}


def rates(report: Figures) -> dict[str, dict[str, float]]:
    """Tokens per second of one sequence by test and depth."""
    return {
        test: {str(one["depth"]): one["tokens_per_second"] for one in report["models"][0]["results"]
               if one["test"] == test and one["batch"] == 1}
        for test in ("decode", "prefill")
    }  # fmt: skip


def measure_speed(args: argparse.Namespace, flags: list[str]) -> Figures:
    """Medians over rounds in which the presets take turns, so that a slow minute of the machine is everybody's."""
    names = ["bf16", *args.speed_presets]
    rounds: list[dict[str, dict[str, dict[str, float]]]] = []  # round, preset, test, depth
    for number in range(args.speed_rounds):
        rounds.append({})
        for name in names if number % 2 == 0 else reversed(names):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "bench.json"
                line = [args.kipp, "bench", "--kv", name, "--kv-unproven", "--batch", "1", "--json", path, *flags]
                line += ["--model", args.speed_model] if args.speed_model else []
                line += ["--depth", args.depths] if args.depths else []
                print("$ kipp", *map(str, line[1:]), file=sys.stderr, flush=True)
                subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
                report = json.loads(path.read_text())
            rounds[-1][name] = rates(report)
    found = {key: report[key] for key in ("cpu", "commit", "date")}
    found |= {key: report["models"][0][key] for key in ("model", "scheme", "threads")}

    def medians(value) -> dict[str, dict[str, float]]:
        return {
            test: {depth: statistics.median(value(one, test, depth) for one in rounds) for depth in depths}
            for test, depths in rounds[0]["bf16"].items()
        }

    found["rounds"] = len(rounds)
    found["presets"] = {name: medians(lambda one, test, depth: one[name][test][depth]) for name in names}
    found["ratios"] = {
        name: medians(lambda one, test, depth: one[name][test][depth] / one["bf16"][test][depth])
        for name in args.speed_presets
    }
    return found


# --- the page


def label(number: int) -> str:
    return f"{number // 1024}k" if number >= 1024 and number % 1024 == 0 else f"{number:,}"


def percent(share: float, digits: int = 2) -> str:
    return f"{100 * share:.{digits}f} %"


def small(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:.5f}" if value >= 1e-3 else f"{value:.1e}"


class Targets:
    """What issue and design ask for, each beside what was found."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.missed: list[str] = []

    def add(self, what: str, asked: str, found: str, met: bool) -> None:
        self.rows.append([what, asked, found, "met" if met else "**missed**"])
        if not met:
            self.missed.append(f"{what}: {found}, asked for {asked}")

    def region(self) -> str:
        return markdown(["what", "asked", "found", ""], self.rows, words=4)


def bits_region(found: Figures, targets: Targets) -> str:
    presets = found["presets"]
    for name, most in ("tiered", 4.6), ("tiered-max", 3.5):
        bits = presets[name]["bits"]["32768"]
        targets.add(f"bits an element at 32k, {name}", f"<= {most}", f"{bits:.2f}", bits <= most)
    for name in TIERED[1:]:
        times = presets["bf16"]["bytes"]["8192"] / presets[name]["bytes"]["8192"]
        targets.add(f"sequences of 8k in one budget, {name}", ">= 3.4 x bf16", f"{times:.2f} x", times >= 3.4)
    columns = [label(n) for n in CONTEXTS]
    bits = [[f"`{name}`", *(f"{one['bits'][str(n)]:.2f}" for n in CONTEXTS)] for name, one in presets.items()]
    mib = [[f"`{name}`", *(f"{one['bytes'][str(n)] / 2**20:,.0f}" for n in CONTEXTS)] for name, one in presets.items()]
    times = [
        [f"`{name}`", *(f"{presets['bf16']['bytes'][str(n)] / one['bytes'][str(n)]:.2f}" for n in CONTEXTS)]
        for name, one in presets.items()
    ]
    bands = [*BANDS, "parameters"]
    by_tier = [
        [f"`{name}`", label(n), *(f"{one['bands'][str(n)][band] / 2**20:,.1f}" for band in bands)]
        for name, one in presets.items() if name != "bf16" for n in (1024, 8192, 32768)
    ]  # fmt: skip
    words = [[f"`{name}`", f"`{one['words']}`"] for name, one in presets.items()]
    return "\n\n".join([
        markdown(["preset", "in words"], words, words=2),
        "Bits of an element by the length of the sequence, scales and offsets and the open block included:",
        markdown(["preset", *columns], bits),
        f"MiB of one sequence with {found['layers']} layers:",
        markdown(["preset", *columns], mib),
        "How many sequences of that length take the memory of one with a BF16 cache:",
        markdown(["preset", *columns], times),
        "Of the MiB above, by band:",
        markdown(["preset", "length", *bands], by_tier),
    ])  # fmt: skip


def divergence_region(found: Figures, targets: Targets) -> str:
    presets = found["presets"]
    tiered = presets["tiered"]["kl"]
    targets.add("mean KL, tiered", "<= 0.01", small(tiered["mean"]), tiered["mean"] <= 0.01)
    targets.add("top-1 agreement, tiered", ">= 98 %", percent(tiered["same_top"]), tiered["same_top"] >= 0.98)
    control = presets["bf16"]["kl"]["max"]
    targets.add("BF16 against BF16", "0", small(control), control == 0)
    decoded = all(found["decoded_is_chunked"].values())
    targets.add("token by token against chunks", "equal", "equal" if decoded else "different", decoded)
    rows = [
        [f"`{name}`", small(one["kl"]["mean"]), small(one["kl"]["p999"]), small(one["kl"]["max"]),
         percent(one["kl"]["same_top"]), f"{one['perplexity']:.4f}"]
        for name, one in presets.items()
    ]  # fmt: skip
    buckets = presets["tiered"]["by_position"]
    columns = [f"from {label(bucket['from'])}" for bucket in buckets]
    mean = [[f"`{name}`", *(small(b["kl"]["mean"]) for b in presets[name]["by_position"])] for name in TIERED]
    tail = [[f"`{name}`", *(small(b["kl"]["p999"]) for b in presets[name]["by_position"])] for name in TIERED]
    top = [[f"`{name}`", *(percent(b["kl"]["same_top"], 1) for b in presets[name]["by_position"])] for name in TIERED]
    return "\n\n".join([
        f"{found['model']} ({found['scheme']}, {found['backend']}) on the first {found['tokens']:,} tokens of "
        f"`{found['text']}`, one sequence. KL(BF16 || preset) in nats. The row of `bf16` is the control: two BF16 "
        "caches side by side.",
        markdown(["preset", "mean KL", "99.9 %", "largest", "same top token", "perplexity"], rows),
        "By position, mean:", markdown(["preset", *columns], mean),
        "99.9th percentile (the largest, where a bucket has fewer than a thousand rows):",
        markdown(["preset", *columns], tail),
        "Same top token:", markdown(["preset", *columns], top),
        "![KL by position](plots/kv_divergence.svg)",
        f"The first {found['decoded']:,} tokens were evaluated once more token by token: "
        + ("every figure is the same to the last bit." if decoded else "**the figures differ.**"),
    ])  # fmt: skip


def floor_region(found: Figures) -> str:
    kl = found["kl"]
    return (
        f"The floor: with a BF16 cache, `{found['backend']}` and `reference` add in different orders, and over the first "
        f"{found['tokens']:,} predictions differ by a mean KL of {small(kl['mean'])}, at most {small(kl['max'])}, with the same "
        f"top token in {percent(kl['same_top'])}. A preset below that cannot be told from BF16."
    )


def recall_region(found: Figures, targets: Targets) -> str:
    presets = found["presets"]
    worst = max(
        (full["given"] - one["given"]) / full["asked"]
        for full, one in zip(presets["bf16"], presets["tiered"], strict=True) if full["asked"]
    )  # fmt: skip
    asked = [one for one in presets["bf16"] if one["asked"]]
    found_words = (
        f"{100 * worst:.1f} points less at worst, {sum(one['asked'] for one in asked)} questions up to "
        f"{max(one['to'] for one in asked):,} tokens back"
    )
    targets.add("recall at every distance, tiered", "within 1 point of bf16", found_words, worst <= 0.01)
    columns = [f"{one['from']}-{one['to']}" for one in asked]
    rows = [
        [f"`{name}`", *(f"{one['given']} of {one['asked']}" for one in ranges if one["asked"])]
        for name, ranges in presets.items()
    ]
    nll = [[f"`{name}`", *(small(one["nll"]) for one in ranges if one["asked"])] for name, ranges in presets.items()]
    return "\n\n".join([
        f"Answers given by {found['model']} ({found['scheme']}), by the distance of the fact in tokens:",
        markdown(["preset", *columns], rows),
        "-log of the probability of the whole answer, mean, which moves before answers are lost:",
        markdown(["preset", *columns], nll),
    ])  # fmt: skip


def sensitivity_region(found: Figures) -> str:
    rows = []
    for side, name in ("K", "keys"), ("V", "values"):
        for width in WIDTHS:
            cells = [found["whole"][f"{side} {width} {how}"] for how in ("rotated", "plain")]
            rows.append([name, width, *(small(cell["kl"]) for cell in cells),
                         *(percent(cell["same_top"]) for cell in cells)])  # fmt: skip
    layers = [
        [what, *(small(one["kl"]) for one in by_layer)] for what, by_layer in found["by_layer"].items()
    ]
    return "\n\n".join([
        f"Every block but the query's own read at one width on one side, the other side BF16; mean KL over "
        f"{found['tokens']:,} tokens:",
        markdown(["side", "width", "rotated", "not rotated", "same top token, rotated", "not rotated"], rows, words=2),
        "In one layer only, rotated:",
        markdown(["", *(f"layer {layer}" for layer in range(found["layers"]))], layers),
    ])  # fmt: skip


def speed_region(found: Figures, targets: Targets) -> str:
    parts = [f"{found['model']} ({found['scheme']}) on {found['cpu']}, {found['threads']} threads, "
             f"medians of {found['rounds']} rounds in which the presets take turns:"]  # fmt: skip
    for test in ("decode", "prefill"):
        depths = sorted(found["presets"]["bf16"][test], key=int)
        rows = []
        for name, one in found["presets"].items():
            cells = [f"{one[test][depth]:.1f}" for depth in depths]
            if name != "bf16":
                cells = [f"{cell} ({found['ratios'][name][test][depth]:.2f} x)" for cell, depth in zip(cells, depths)]
            rows.append([f"`{name}`", *cells])
        parts += [f"{test}, tokens/s by positions cached before:",
                  markdown(["preset", *(label(int(depth)) for depth in depths)], rows)]  # fmt: skip
    ratios = found["ratios"].get("tiered")
    if ratios:
        far = [depth for depth in ratios["decode"] if int(depth) >= 16384]
        for depth in far:
            times = ratios["decode"][depth]
            targets.add(f"decode at {label(int(depth))}, tiered", ">= 1.6 x bf16", f"{times:.2f} x", times >= 1.6)
        deep = [times for depth, times in ratios["decode"].items() if int(depth) >= 1024]
        if deep:
            targets.add("decode from 1k on, tiered, at worst", ">= 1 x bf16", f"{min(deep):.2f} x", min(deep) >= 1)
        slowest = min(ratios["prefill"].values())
        targets.add("prefill, tiered, at worst", ">= 0.95 x bf16", f"{slowest:.2f} x", slowest >= 0.95)
    return "\n\n".join(parts)


def divergence_chart(found: Figures) -> str:
    presets = {name: found["presets"][name]["by_position"] for name in TIERED}
    ticks = [label(bucket["from"]) for bucket in presets["tiered"]]

    def panel(y_name: str, field: str) -> Panel:
        return Panel(y_name, [
            Curve(name, [(float(at), b["kl"][field]) for at, b in enumerate(buckets) if b["kl"][field] > 0])
            for name, buckets in presets.items()
        ])  # fmt: skip

    return log_chart(
        f"Divergence from a BF16 cache: {found['model']}", "tokens seen before, from",
        [panel("mean KL", "mean"), panel("99.9th percentile of KL", "p999")], ticks,
    )  # fmt: skip


def memory_chart(bits: Figures, speed: Figures | None) -> str:
    """Memory against context, and beside it the speed where it was measured."""
    depths = CONTEXTS
    if speed:
        depths = sorted(int(depth) for depth in speed["presets"]["bf16"]["decode"] if int(depth) >= 1024)
    names = [name for name in ("bf16", "tiered", "tiered-max") if not speed or name in speed["presets"]]

    def curve(name: str, value) -> Curve:
        return Curve(name, [(float(at), value(name, depth)) for at, depth in enumerate(depths)])

    layers = bits["layers"]
    panels = [Panel("MiB of a sequence", [curve(n, lambda n, d: Policy.parse(n).bytes(d, layers) / 2**20) for n in names])]
    title = f"KV cache by context, {layers} layers"
    if speed:
        panels.append(Panel("decode, tokens/s",
                            [curve(n, lambda n, d: speed["presets"][n]["decode"][str(d)]) for n in names]))  # fmt: skip
        title += f": {speed['model']} {speed['scheme']}, {speed['cpu']}, {speed['threads']} threads"
    return log_chart(title, "positions", panels, [label(depth) for depth in depths])


def regions(figures: dict[str, Figures], targets: Targets) -> dict[str, str]:
    made = {}
    for part, make in (
        ("bits", lambda f: bits_region(f, targets)), ("floor", floor_region), ("divergence", lambda f: divergence_region(f, targets)),
        ("recall", lambda f: recall_region(f, targets)), ("sensitivity", sensitivity_region),
        ("speed", lambda f: speed_region(f, targets)),
    ):  # fmt: skip
        if part in figures:
            made[part] = make(figures[part])
    return {"targets": targets.region()} | made


def charts(figures: dict[str, Figures]) -> dict[str, str]:
    drawn = {}
    if "divergence" in figures:
        drawn["kv_divergence.svg"] = divergence_chart(figures["divergence"])
    if "bits" in figures:
        drawn["kv_memory.svg"] = memory_chart(figures["bits"], figures.get("speed"))
    return drawn


def write(figures: dict[str, Figures], page: pathlib.Path, plots: pathlib.Path) -> Targets:
    """Into the page's regions; a region that it lacks is added at its end."""
    targets = Targets()
    made = regions(figures, targets)
    plots.mkdir(parents=True, exist_ok=True)
    text = page.read_text() if page.exists() else ""
    for name, body in made.items():
        if f"<!-- {name}:begin -->" not in text:
            text += f"## {name}\n\n<!-- {name}:begin -->\n<!-- {name}:end -->\n\n"
        text = replace_region(text, name, body)
    page.write_text(text)
    for name, svg in charts(figures).items():
        (plots / name).write_text(svg)
    return targets


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    parser.add_argument("--kipp", type=pathlib.Path, default=build_folder() / "kipp")
    parser.add_argument("--model", help="as `kipp run --model`; none: the demo checkpoint")
    parser.add_argument("--text", default=str(REPOSITORY / "tests" / "data" / "prose_sample.txt"))
    parser.add_argument("--tokens", type=int, default=8192, help="of the text, one sequence")
    parser.add_argument("--decoded", type=int, default=1152, help="of these, token by token once more")
    parser.add_argument("--floor-tokens", type=int, default=128, help="of the text, by the slow reference backend too")
    parser.add_argument("--sensitivity-tokens", type=int, default=1024)
    parser.add_argument("--questions", type=int, default=12, help="for each range of distances")
    parser.add_argument("--recall-context", type=int, default=8192)
    parser.add_argument("--speed-model", help="of the speed part, where it is not --model")
    parser.add_argument("--speed-presets", nargs="+", default=["tiered"])
    parser.add_argument("--speed-rounds", type=int, default=3)
    parser.add_argument("--depths", help="of the speed part, as `kipp bench --depth`")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--out", type=pathlib.Path, help="folder for page, figures and plots, in place of docs/")
    args, flags = parser.parse_known_args()
    if wrong := [part for part in args.parts if part not in PARTS]:
        parser.error(f"expected parts out of {', '.join(PARTS)}, found {wrong[0]}")
    args.speed_model = args.speed_model or args.model

    out = args.out or REPOSITORY / "docs"
    kept = out / "plots" / "kv_evidence.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Figures] = json.loads(kept.read_text()) if kept.exists() else {}
    kipp = Kipp(args.kipp, ["--model", args.model] if args.model else [], flags)
    measures = {
        "bits": measure_bits, "floor": lambda: measure_floor(kipp, args), "divergence": lambda: measure_divergence(kipp, args),
        "recall": lambda: measure_recall(kipp, args), "sensitivity": lambda: measure_sensitivity(kipp, args),
        "speed": lambda: measure_speed(args, flags),
    }  # fmt: skip
    for part in [] if args.draw else args.parts or PARTS:
        figures[part] = measures[part]()
        kept.write_text(json.dumps(figures, indent=1) + "\n")  # an interruption keeps what was done
    targets = write(figures, out / "KV.md", out / "plots")
    for row in targets.rows:
        print(": ".join(row[:1]) + f": {row[2]} (asked {row[1]})")
    for missed in targets.missed:
        print(f"evidence: {missed}", file=sys.stderr)
    return 1 if targets.missed else 0


if __name__ == "__main__":
    sys.exit(main())
