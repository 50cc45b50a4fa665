"""Measures what kvquant loses and how fast it is, and rewrites both in src/kvquant/README.md with its plots:
`./dev kvquant`.

Errors come from build/tests/kvquant_quality, optima from tools/lloyd_max.py, speed from build/kvquant_kvquant_bench
where that was built. Every figure of the two marked regions of the page is made here, and every sentence that judges
them is checked against them. Exit code 1 when a target is missed or a sentence no longer holds. Without the page the
regions are printed.
"""

from __future__ import annotations

import argparse
import csv
import math
import pathlib
import subprocess
import sys
from dataclasses import dataclass, field

import kvquant_speed
from lloyd_max import GAUSSIAN, LAPLACE, STUDENT5, Density, lloyd_max, shannon_factor
from probe import REPOSITORY, build_folder
from svg_chart import Curve, Panel, log_chart

LIBRARY = REPOSITORY / "src" / "kvquant"

# Targets, relative mean square errors on Gaussian rows in groups of 128.
INT8_TARGET = 4e-5
INT2_TARGET = 0.135

OUTLIER_SHARE, OUTLIER_ENERGY = 2 / 128, 20.0**2  # of kvquant_quality's rows with outlier channels

Key = tuple[str, ...]
DEFAULTS = {
    "input": "gaussian", "bits": "int8", "grouping": "per_token", "group_size": "128", "symmetric": "0",
    "hadamard": "0", "clip_percent": "100", "levels": "",
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    bits_read: float  # an element, parameters that the read touches included
    bits_stored: float  # when every plane the read does not need was freed
    mse: float
    channel_mse: float
    gain: float
    worst: float

    @property
    def wasted(self) -> float:
        """Bits read beyond those that the best of all codes needs for this error on Gaussian values."""
        return self.bits_read - math.log2(1 / self.mse) / 2


class Results:
    """What kvquant_quality printed, by scheme, width and levels."""

    def __init__(self, text: str) -> None:
        self.rows: dict[Key, Reading] = {}
        for row in csv.DictReader(text.splitlines()):
            figures = {name: float(row.pop(name)) for name in Reading.__dataclass_fields__}
            self.rows[tuple(row[name] for name in (*DEFAULTS, "width"))] = Reading(**figures)

    def find(self, width: str, **scheme: str | int) -> Reading:
        """By what differs from nested int8 codes, affine per token in groups of 128. Int2 of wider codes is read with
        the fitted pair unless `levels` says otherwise."""
        key = DEFAULTS | {name: str(value) for name, value in scheme.items()}
        key["levels"] = key["levels"] or (
            "own" if key["bits"] == width else "fitted" if width == "int2" else "centres"
        )
        return self.rows[*key.values(), width]


def measure(blocks: int, inputs: list[str] | None = None, seed: int = 1) -> Results:
    tool = build_folder() / "tests" / "kvquant_quality"
    text = ""
    for name in inputs or list(INPUTS):
        command = [tool, "--blocks", str(blocks), "--seed", str(seed), "--input", name]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines(keepends=True)
        text += "".join(lines[1:] if text else lines)
    return Results(text)


# --- inputs and what is best for them


@dataclass(frozen=True)
class Source:
    title: str
    density: Density
    shannon: float = 1.0  # beside the density's own factor: what knowing the channels' scales is worth


def outlier_factor() -> float:
    """Geometric over arithmetic mean of the channels' energies."""
    return OUTLIER_ENERGY**OUTLIER_SHARE / (OUTLIER_SHARE * OUTLIER_ENERGY + 1 - OUTLIER_SHARE)


INPUTS = {
    "gaussian": Source("Gaussian", GAUSSIAN),
    "laplace": Source("Laplace", LAPLACE),
    "student_t5": Source("Student's t, 5 degrees of freedom", STUDENT5),
    "outlier_channels": Source("2 of 128 channels 20 times as large", GAUSSIAN, outlier_factor()),
}


def bound_factor(source: str) -> float:
    """Shannon's bound of a relative error at R bits, over 4**-R."""
    return INPUTS[source].shannon * shannon_factor(INPUTS[source].density)


LEVELS = {"int8": 256, "int4": 16, "int2": 4}
WIDTHS = list(LEVELS)


@dataclass(frozen=True)
class Line:
    """One row of the tables, and a curve where it has a short name."""

    name: str
    scheme: dict[str, str | int]
    curve: str = ""
    widths: list[str] = field(default_factory=lambda: WIDTHS)
    separate: bool = False  # every width by codes of its own

    def find(self, results: Results, source: str, width: str) -> Reading | None:
        if width not in self.widths:
            return None
        scheme = self.scheme | ({"bits": width} if self.separate else {})
        return results.find(width, input=source, **scheme)


CLIPPED = {"bits": "int4", "clip_percent": 90}
LINES = [
    Line("nested", {}, "nested"),
    Line("separate codes for each width", {}, "separate codes", separate=True),
    Line("nested, rotated", {"hadamard": 1}, "nested, rotated"),
    Line("nested, groups of 32", {"group_size": 32}, "nested, groups of 32"),
    Line("nested, groups of 64", {"group_size": 64}),
    Line("nested, groups of 1024", {"group_size": 1024}),
    Line("nested, 32 positions of a channel", {"grouping": "per_channel", "group_size": 32}, "nested, per channel"),
    Line("nested, symmetric", {"symmetric": 1}, "nested, symmetric"),
    Line("nested, symmetric, rotated", {"symmetric": 1, "hadamard": 1}),
    Line("nested, symmetric, groups of 64, rotated", {"symmetric": 1, "hadamard": 1, "group_size": 64}),
    Line("int4 codes, 90 % of the range", CLIPPED, widths=["int4", "int2"]),
    Line("int4 codes, 90 % of the range, rotated", CLIPPED | {"hadamard": 1}, widths=["int4", "int2"]),
]


def draw(results: Results, source: str) -> str:
    """Error against bits, and the same over what the best code of as many bits would leave, where curves part."""
    curves = []
    for line in LINES:
        if line.curve:
            readings = [line.find(results, source, width) for width in reversed(WIDTHS)]
            curves.append(Curve(line.curve, [(r.bits_read, r.mse) for r in readings if r]))
    density, factor = INPUTS[source].density, bound_factor(source)
    optimum = [(math.log2(n), lloyd_max(density, n)) for n in (2, 4, 8, 16, 32, 64, 128, 256)]
    curves.append(Curve("Lloyd-Max", optimum, dashed=True))
    curves.append(Curve("Shannon's bound", [(bits, factor * 4.0**-bits) for bits in (1, 9)], dashed=True))
    over = [Curve(c.name, [(x, y * 4.0**x / factor) for x, y in c.points], c.dashed) for c in curves]
    panels = [Panel("relative mean square error", curves), Panel("error over Shannon's bound", over)]
    return log_chart(INPUTS[source].title, "bits an element, parameters included", panels)


# --- text


def figure(value: float) -> str:
    """Three digits, as a reader would write them."""
    if value >= 0.001:
        return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"
    return f"{value:.2e}".replace("e-0", "e-")


def markdown(columns: list[str], rows: list[list[str]], words: int = 1) -> str:
    """The first `words` columns hold words, the others figures."""
    rule = ["---"] * words + ["---:"] * (len(columns) - words)
    return "\n".join("| " + " | ".join(line) + " |" for line in [columns, rule, *rows])


def input_table(results: Results, source: str, quantity: str = "mse") -> str:
    rows = []
    for line in LINES:
        found = [line.find(results, source, width) for width in WIDTHS]
        narrow = found[-1]
        assert narrow is not None
        rows.append(
            [line.name, f"{narrow.bits_read - 2:.3g}", *(figure(getattr(r, quantity)) if r else "" for r in found)]
        )
    if quantity == "mse":
        optimum = [figure(lloyd_max(INPUTS[source].density, levels)) for levels in LEVELS.values()]
        bound = [figure(bound_factor(source) * 4.0 ** -(math.log2(levels) + 0.25)) for levels in LEVELS.values()]
        rows.append(["Lloyd-Max for the known distribution", "0", *optimum])
        rows.append(["Shannon's bound", "0.25", *bound])
    return markdown(["scheme", "parameter bits", *WIDTHS], rows)


@dataclass
class Verdicts:
    """Rows of the table of targets and judging sentences, with what is wrong with them."""

    wrong: list[str] = field(default_factory=list)

    def target(self, what: str, reading: Reading, bound: float | None = None, words: str = "") -> list[str]:
        """A row; without a bound, for comparison only."""
        missed = bound is not None and not reading.mse <= bound
        if missed:
            self.wrong.append(f"{what}: {reading.mse:.4g} is more than {bound:.4g}")
        outcome = "" if bound is None else "**missed**" if missed else "met"
        limit = "" if bound is None else f"at most {figure(bound)}{words}"
        figures = [f"{reading.bits_read:g}", figure(reading.mse), f"{reading.gain:.3f}", f"{reading.worst:.1%}"]
        return [what, *figures, limit, outcome]

    def say(self, holds: bool, sentence: str) -> str:
        if not holds:
            self.wrong.append(f"no longer true: {sentence}")
        return f"- {sentence}"


def target_table(results: Results, verdicts: Verdicts) -> str:
    find, row = results.find, verdicts.target
    separate4 = find("int4", bits="int4")
    rows = [
        row("int8", find("int8"), INT8_TARGET),
        row("int4, nested", find("int4"), separate4.mse, ", the separate one"),
        row("int4, separate min-max codes", separate4),
        row("int2, nested, fitted pair", find("int2"), INT2_TARGET),
        row("int2, nested, cell centres (not offered)", find("int2", levels="centres")),
        row("int2, separate min-max codes", find("int2", bits="int2")),
    ]
    for clip in (95, 90, 85):
        rows.append(row(f"int2 of int4 codes, {clip} % of the range", find("int2", bits="int4", clip_percent=clip)))
    for bits, levels in ((8, 256), (4, 16), (2, 4)):
        error = lloyd_max(GAUSSIAN, levels)
        rows.append([f"Lloyd-Max, {levels} levels", f"{bits}", figure(error), f"{1 - error:.3f}", "", "", ""])
    return markdown(["read", "bits", "error", "gain", "worst element", "target", ""], rows)


def sentences(results: Results, verdicts: Verdicts) -> str:
    find, say = results.find, verdicts.say
    outliers = {"input": "outlier_channels"}
    bf16 = find("bf16", bits="bf16", levels="own").mse
    int4, int2, centres = find("int4"), find("int2"), find("int2", levels="centres")
    own, own95, own90 = (find("int4", bits="int4", clip_percent=clip) for clip in (100, 95, 90))
    narrow, narrow60 = (find("int2", bits="int2", clip_percent=clip) for clip in (100, 60))
    clipped = find("int2", **CLIPPED)
    laplace, laplace_turned = find("int4", input="laplace"), find("int4", input="laplace", hadamard=1)
    plain, turned = find("int4", **outliers), find("int4", **outliers, hadamard=1)
    channel = find("int4", **outliers, grouping="per_channel", group_size=32)
    wasted = {size: find("int4", group_size=size).wasted for size in (32, 64, 128, 1024)}
    symmetric, three_levels = find("int4", symmetric=1), find("int2", bits="int2", symmetric=1)
    lost = find("int2", **outliers, symmetric=1)
    return "\n".join([
        say(
            0.03 < bf16 / find("int8").mse < 0.15,
            f"Rounding rows to BF16 first costs {figure(bf16)}: {bf16 / find('int8').mse:.0%} of the error of int8, "
            "and nothing that shows at four bits.",
        ),
        say(
            int4.mse < own.mse and own95.mse < own.mse and abs(own95.mse / int4.mse - 1) < 0.02,
            "Nesting costs nothing, it gains: the top bits of 256 levels cut the range into equal cells, while "
            "separate min-max codes put their outermost levels on its ends. So int4 codes of their own "
            f"({figure(own.mse)}) are worse than the upper half of int8 codes ({figure(int4.mse)}) unless "
            f"`clip_percent` is 95 ({figure(own95.mse)}) or 90 ({figure(own90.mse)}), and separate int2 codes want 60 "
            f"({figure(narrow60.mse)} against {figure(narrow.mse)}).",
        ),
        say(
            clipped.mse < 0.97 * int2.mse and own90.mse < 1.02 * int4.mse,
            f"Where nothing is ever read at int8, int4 codes over 90 % of the range are the better store: int2 at "
            f"{figure(clipped.mse)} in place of {figure(int2.mse)}, int4 within 2 %.",
        ),
        say(
            abs(find("int4", hadamard=1).mse / int4.mse - 1) < 0.02
            and laplace.mse > 1.5 * laplace_turned.mse
            and plain.mse > 8 * turned.mse,
            "Rotation costs Gaussian rows nothing and makes other rows behave like them: int4 on Laplace rows falls "
            f"from {figure(laplace.mse)} to {figure(laplace_turned.mse)}, with outlier channels from "
            f"{figure(plain.mse)} to {figure(turned.mse)}.",
        ),
        say(
            4 * channel.channel_mse < turned.channel_mse < plain.channel_mse / 4,
            "What rotation cannot do is keep ordinary channels apart from outliers. Each channel relative to its own "
            f"energy, int4 loses {figure(plain.channel_mse)} plain, {figure(turned.channel_mse)} rotated and "
            f"{figure(channel.channel_mse)} with groups along the channel, which take {channel.bits_read - 4:g} bit of "
            "parameters and wait for a complete block.",
        ),
        say(
            min(wasted, key=lambda size: wasted[size]) == 128 and abs(symmetric.wasted - wasted[128]) < 0.05,
            "Groups of 128 spend bits best. Beyond what a perfect code needs for the same error on Gaussian rows, a "
            f"read at int4 spends {wasted[32]:.2f} bits with groups of 32, {wasted[64]:.2f} with 64, "
            f"{wasted[128]:.2f} with 128 and {wasted[1024]:.2f} with 1024. Symmetric groups of 128 spend "
            f"{symmetric.wasted:.2f}: on rows around zero, giving up the offset is a fair trade at int4.",
        ),
        say(
            int2.gain < 0.9 < centres.gain and abs(int2.gain + int2.mse - 1) < 0.01,
            f"A fitted read at int2 shrinks: its dot product with the original is {int2.gain:.3f} of what it should be "
            f"(cell centres: {centres.gain:.3f}, with an error of {figure(centres.mse)}). Every quantizer of least "
            "error does, Lloyd-Max too. It matters where errors average out over many positions: shrinkage does not.",
        ),
        say(
            three_levels.mse > 0.5 and lost.mse > 1,
            f"Do not read symmetric groups at int2. Codes of their own use three levels ({figure(three_levels.mse)}). "
            "Nested, four levels around zero have none for the small values of a group with an outlier: unrotated rows "
            f"with outlier channels come back with {figure(lost.mse)} times their energy as error, where zeros would "
            "have cost 1.",
        ),
    ])  # fmt: skip


def recommendation(results: Results) -> str:
    nested, clipped = {"hadamard": 1}, CLIPPED | {"hadamard": 1}
    channel = {"grouping": "per_channel", "group_size": 32}

    def row(what: str, how: str, width: str, scheme: dict[str, str | int]) -> list[str]:
        found = [results.find(width, input=source, **scheme) for source in INPUTS]
        return [what, how, f"{found[0].bits_read:g}", *(figure(r.mse) for r in found)]

    codes = "int8 codes, affine, per token, 128, rotated"
    narrow = "int4 codes, the same, `clip_percent` 90"
    rows = [
        row("as good as BF16", codes, "int8", nested),
        row("keys, mid and far", f"{codes}; read at int4", "int4", nested),
        row("values, mid", f"{codes}; read at int4", "int4", nested),
        row("values, far", f"{codes}; read at int2", "int2", nested),
        row("values never read at int8, mid", narrow, "int4", clipped),
        row("values never read at int8, far", f"{narrow}; read at int2", "int2", clipped),
        row("keys that nobody may rotate", "int8 codes, affine, per channel, 32; read at int4", "int4", channel),
    ]
    return markdown(["for", "scheme", "bits", "Gaussian", "Laplace", "Student's t", "outliers"], rows, words=2)


def quality_region(results: Results, elements: int, verdicts: Verdicts) -> str:
    int2_over_int4 = results.find("int2", hadamard=1).mse / results.find("int4", hadamard=1).mse
    parts = [
        f"""\
Measured by `./dev kvquant` in kipp's repository on {elements:,} generated elements of each kind, 8 heads of 128. Error:
sum of squared errors over sum of squares, against the rows before they were rounded to BF16. Bits: codes, and every
parameter the read touches. Gain: dot product of what is read with the original, over the original's with itself. Worst
element: as a share of the largest one in its head's row.""",
        "### Targets",
        "Gaussian rows, groups of 128, affine, not rotated.",
        target_table(results, verdicts),
        "### What the figures say",
        sentences(results, verdicts),
        "### Which scheme for what",
        recommendation(results),
        f"""\
Int2 has {int2_over_int4:.0f} times the error of int4: it is for values, and for far keys only where tests of the
model allow it.""",
        "### Every scheme",
        """\
Groups are per token and of 128 unless the line says otherwise; int2 of wider codes is read with the fitted pair. The
right half of each plot is over Shannon's bound, which no code of as many bits can beat: there the curves part.""",
    ]
    for source, about in INPUTS.items():
        parts.append(f"#### {about.title}\n\n![Error against bits: {about.title}](plots/{source}.svg)")
        parts.append(input_table(results, source))
    parts.append("The same rows, each channel's error relative to its own energy, averaged over channels:")
    parts.append(input_table(results, "outlier_channels", "channel_mse"))
    return "\n\n".join(parts)


def replace_region(text: str, name: str, body: str) -> str:
    """`text` with what stands between the two marks of a region replaced; everything else as it was."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"expected one {begin} and after it one {end}")
    head, rest = text.split(begin)
    return f"{head}{begin}\n{body}\n{end}{rest.split(end)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--blocks", type=int, default=64, help="pairs of blocks of each input, 65,536 elements each")
    parser.add_argument("--readme", type=pathlib.Path, default=LIBRARY / "README.md")
    parser.add_argument("--no-speed", action="store_true", help="leave the speed region as it is")
    parser.add_argument(
        "--speed", action="append", default=[], metavar="PROCESSOR=FILE",
        help="what the benchmark wrote elsewhere as JSON, in place of a run here; a table for each",
    )  # fmt: skip
    args = parser.parse_args()
    verdicts = Verdicts()
    results = measure(args.blocks)
    regions = {"quality": quality_region(results, args.blocks * 65536, verdicts)}
    bench = build_folder() / "kvquant_kvquant_bench"
    if args.speed:
        given = [other.partition("=") for other in args.speed]
        measured = [(name, kvquant_speed.read(pathlib.Path(file))) for name, _, file in given]
        regions["speed"] = kvquant_speed.speed_region(measured, verdicts.wrong)
    elif bench.exists() and not args.no_speed:
        here = (kvquant_speed.processor(), kvquant_speed.measure(bench))
        regions["speed"] = kvquant_speed.speed_region([here], verdicts.wrong)
    if args.readme.exists():
        text = args.readme.read_bytes().decode()
        for name, body in regions.items():
            text = replace_region(text, name, body)
        plots = args.readme.parent / "plots"
        plots.mkdir(exist_ok=True)
        for source in INPUTS:
            (plots / f"{source}.svg").write_text(draw(results, source), encoding="utf-8")
        args.readme.write_bytes(text.encode())
    else:
        print("\n\n".join(regions.values()))
    for wrong in verdicts.wrong:
        print(f"kvquant: {wrong}", file=sys.stderr)
    sys.exit(1 if verdicts.wrong else 0)


if __name__ == "__main__":
    main()
