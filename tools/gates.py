"""Measures the gates of the backends and rewrites docs/GATES.md: `./dev gate`, or with --large also a synthetic twin
of the 0.6B checkpoint.

Gates of `reference`: the oracle (keys and values as stored, and with their rounding to BF16 off), cached decode and
every other way of cutting the same work (bit for bit), quantized against bf16, and the golden logits of transformers.
Gates of `cpu`: `reference` (prefill, every decode position, truncated and resumed, batched), and every way of cutting
the work on any number of threads (bit for bit). Exit code 1 when one fails.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

import numpy as np

from oracle import Oracle
from probe import BLOCK, LOGITS, REPOSITORY, build_folder, item, nmse, run_steps, scrambled_blocks
from prompts import CHAT, FAR, PASSAGE, STORY

SCHEMES = ["bf16", "q8_0", "affine4_gs32", "scale4_gs32"]
GOLDEN = REPOSITORY / "tests" / "data" / "golden"
REPORT = REPOSITORY / "docs" / "GATES.md"
SEED = 7
MAX_STEP = 512

# cpu against reference; the contract asks for 1e-4. With keys and values in float32 both compute the same sums in
# another order. As stored, a value next to a rounding boundary of BF16 may fall to the other side, on either.
CPU_EXACT_BOUND = {"bf16": 1e-9, "q8_0": 1e-7, "affine4_gs32": 1e-7, "scale4_gs32": 1e-7}
CPU_MEAN_BOUND = 1e-6
CPU_ORACLE_BOUND = 5e-6  # of any position against the oracle, which both are compared with
CPU_WORST_BOUND = 5e-6  # against reference, which may lie on the other side of the oracle
CPU_THREADS = [1, 2, 3, 16]

STORED_BOUND = 5e-5  # oracle and transformers, keys and values in BF16
EXACT_BOUND = 1e-9  # the same, in float32
# Mean over the positions of the prompts against bf16, trained weights. q8_0's is the contract's; the 4-bit ones are
# twice what the demo checkpoint measured when they were set (2.6e-3, 4.8e-3).
QUANTIZED_BOUND = {"q8_0": 5e-5, "affine4_gs32": 5e-3, "scale4_gs32": 1e-2}


@dataclass
class Subject:
    checkpoint: str
    scheme: str
    path: pathlib.Path
    prompts: list[list[int]] = field(default_factory=list)
    sequence: list[int] = field(default_factory=list)  # what the invariance gate cuts
    logits: list[np.ndarray] = field(default_factory=list)  # reference, of each prompt, as stored
    exact_logits: list[np.ndarray] = field(default_factory=list)  # the same in float32
    cpu_logits: list[np.ndarray] = field(default_factory=list)  # cpu, of each prompt, as stored
    oracle_logits: list[np.ndarray] = field(default_factory=list)  # of each prompt, as stored


@dataclass
class Table:
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    failed: int = 0

    def add(self, passed: bool, *cells: str) -> None:
        self.rows.append([*cells, "pass" if passed else "**FAIL**"])
        self.failed += not passed
        print("  " + " | ".join(self.rows[-1]), flush=True)

    def text(self) -> str:
        lines = [[*self.columns, "outcome"], ["---"] * (len(self.columns) + 1), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def kipp(*arguments: str | os.PathLike, **environment: str) -> None:
    subprocess.run(
        [build_folder() / "kipp", *arguments], check=True, capture_output=True, env=os.environ | environment
    )


def blocks_of(tokens: list[int], at: int) -> list[int]:
    """A block table of its own for prompt number `at`."""
    return [at * 64 + block for block in scrambled_blocks(len(tokens), 64, seed=at)]


def evaluate(
    path: os.PathLike, prompts: list[list[int]], kv_store: str, backend: str = "reference"
) -> list[np.ndarray]:
    """Logits of every position of a prompt that fits into one step, of the last position of a longer one."""
    steps, owners = [], []
    for at, tokens in enumerate(prompts):
        for begin in range(0, len(tokens), MAX_STEP):
            chunk = tokens[begin : begin + MAX_STEP]
            want = "all" if len(tokens) <= MAX_STEP else "last"
            steps.append([item(chunk, pos=begin, seq=at, blocks=blocks_of(tokens, at), want=want)])
            owners.append(at)
    results = run_steps(path, steps, kv_blocks=64 * len(prompts), kv_store=kv_store, backend=backend)
    return list({at: step[LOGITS] for at, step in zip(owners, results)}.values())


def worst(found: list[np.ndarray], expected: list[np.ndarray]) -> tuple[float, int, int]:
    """The largest NMSE of any position, and at how many of how many positions the arg max agrees."""
    pairs = [pair for a, b in zip(found, expected, strict=True) for pair in zip(a, b, strict=True)]
    return (
        max(nmse(a, b) for a, b in pairs),
        sum(a.argmax() == b.argmax() for a, b in pairs),
        len(pairs),
    )


def oracle_gate(table: Table, subject: Subject) -> None:
    oracle = Oracle(subject.path)
    figures, same_arg_max = [], True
    for kv_store in ("bf16", "f32"):
        found = evaluate(subject.path, subject.prompts, kv_store)
        expected = [
            oracle.forward(tokens, round_kv=kv_store == "bf16", last_only=len(tokens) > MAX_STEP)
            for tokens in subject.prompts
        ]
        error, agree, positions = worst(found, expected)
        figures.append(error)
        same_arg_max &= agree == positions
        if kv_store == "bf16":
            subject.logits = found
            subject.oracle_logits = expected
        else:
            subject.exact_logits = found
    passed = same_arg_max and figures[0] <= STORED_BOUND and figures[1] <= EXACT_BOUND
    table.add(
        passed,
        subject.checkpoint,
        subject.scheme,
        str(positions),
        f"{figures[0]:.1e}",
        f"{figures[1]:.1e}",
        "same" if same_arg_max else "differs",
    )


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


Way = list[tuple[int, int, int]]  # (step, row, position) of each of its logits


def every_way(tokens: list[int]) -> tuple[list[list[dict]], dict[str, Way]]:
    """Steps that evaluate a sequence whole, then cut in every other way; where each way finds its logits."""
    n = len(tokens)
    tables = {0: list(range(4)), 1: [20, 5, 17, 9], 2: [30, 12, 25, 7]}
    steps = [[item(tokens, blocks=tables[0])]]
    found: dict[str, Way] = {"whole": [(0, pos, pos) for pos in range(n)]}
    decode = found.setdefault("decode", [])
    for pos in range(n):
        decode.append((len(steps), 0, pos))
        steps.append([item(tokens[pos : pos + 1], pos=pos, seq=1, blocks=tables[1])])
    recomputed = found.setdefault("recomputed", [])
    for pos in range(n):
        recomputed.append((len(steps), 0, pos))
        steps.append([item(tokens[: pos + 1], blocks=tables[2], want="last")])
    for chunk in (7, 32, 33):
        rows = found.setdefault(f"chunks of {chunk}", [])
        for begin in range(0, n, chunk):
            part = tokens[begin : begin + chunk]
            rows += [(len(steps), row, begin + row) for row in range(len(part))]
            steps.append([item(part, pos=begin, blocks=tables[1])])
    batched = found.setdefault("batched", [])
    for begin in range(0, n, 5):
        part = tokens[begin : begin + 5]
        neighbour = item([begin + 1] * 3, pos=begin * 3 // 5, seq=8, blocks=tables[2])
        batched += [(len(steps), 3 + row, begin + row) for row in range(len(part))]
        steps.append([neighbour, item(part, pos=begin, seq=9, blocks=tables[1])])
    resumed = found.setdefault("truncated and resumed", [])
    keep = n // 2
    steps.append([item(tokens[::-1][: n - keep], pos=keep, blocks=tables[1], want="none")])
    resumed += [(len(steps), row, keep + row) for row in range(n - keep)]
    steps.append([item(tokens[keep:], pos=keep, blocks=tables[1])])
    return steps, found


def logits_of(results: list, way: Way) -> list[np.ndarray]:
    return [results[step][LOGITS][row] for step, row, _ in way]


def differing(results: list, ways: dict[str, Way], expected: np.ndarray) -> list[str]:
    """The ways that do not give the expected bits at each of their positions."""
    return [
        name
        for name, way in ways.items()
        if not all(same_bits(row, expected[pos]) for row, (_, _, pos) in zip(logits_of(results, way), way, strict=True))
    ]


def verdict(ways: list[str]) -> str:
    return ", ".join(ways) if ways else "bit-equal"


def invariance_gate(table: Table, subject: Subject) -> None:
    steps, ways = every_way(subject.sequence)
    results = run_steps(subject.path, steps, kv_blocks=BLOCK)
    failed = differing(results, ways, results[0][LOGITS])
    table.add(
        not failed,
        subject.checkpoint,
        subject.scheme,
        str(len(subject.sequence)),
        *("differs" if name in failed else "bit-equal" for name in ("decode", "recomputed")),
        verdict(failed),
    )


def margin(expected: np.ndarray, token: int) -> float:
    """How much better than `token` the best one is, in logits."""
    return float(expected.max() - expected[token])


CPU_WAYS = ["decode", "truncated and resumed", "batched"]


def cpu_gate(table: Table, subject: Subject) -> None:
    """`cpu` against `reference`: the prompts read whole, and one sequence in the ways that use the cache."""
    steps, ways = every_way(subject.sequence)
    errors: dict[str, dict[str, list[float]]] = {}
    positions, ties, differ = 0, 0, 0
    doubts = [np.abs(a - b).max(axis=1) for a, b in zip(subject.logits, subject.oracle_logits, strict=True)]
    doubts_of_sequence = doubts[subject.prompts.index(subject.sequence)]
    from_oracle = 0.0
    for kv_store, prompts in (("bf16", subject.logits), ("f32", subject.exact_logits)):
        runs = {
            name: run_steps(subject.path, steps, kv_blocks=BLOCK, kv_store=kv_store, backend=name)
            for name in ("cpu", "reference")
        }
        found = evaluate(subject.path, subject.prompts, kv_store, backend="cpu")
        if kv_store == "bf16":
            subject.cpu_logits = found
            from_oracle, *_ = worst(found, subject.oracle_logits)
        compared = {"prefill": (found, prompts, doubts)}
        for name in CPU_WAYS:
            rows = ([np.stack(logits_of(runs[backend], ways[name]))] for backend in ("cpu", "reference"))
            compared[name] = (*rows, [doubts_of_sequence[[pos for *_, pos in ways[name]]]])
        errors[kv_store] = {}
        for name, lists in compared.items():
            rows = [row for arrays in zip(*lists, strict=True) for row in zip(*arrays, strict=True)]
            errors[kv_store][name] = [nmse(a, b) for a, b, _ in rows]
            positions += len(rows)
            lost = [(margin(b, a.argmax()), doubt if kv_store == "bf16" else 0) for a, b, doubt in rows]
            ties += sum(0 < gap <= doubt for gap, doubt in lost)
            differ += sum(gap > doubt for gap, doubt in lost)
    stored = errors["bf16"]
    exact = max(map(max, errors["f32"].values()))
    mean = float(np.mean(sum(stored.values(), [])))
    worst_stored = max(map(max, stored.values()))
    table.add(
        differ + ties == 0
        and exact <= CPU_EXACT_BOUND[subject.scheme]
        and mean <= CPU_MEAN_BOUND
        and from_oracle <= CPU_ORACLE_BOUND
        and worst_stored <= CPU_WORST_BOUND,
        subject.checkpoint,
        subject.scheme,
        str(positions),
        f"{exact:.1e}",
        f"{mean:.1e}",
        f"{from_oracle:.1e}",
        *(f"{max(values):.1e}" for values in stored.values()),
        f"differs at {differ + ties}, {ties} of them ties" if differ + ties else "same",
    )


def cpu_invariance_gate(table: Table, subject: Subject) -> None:
    steps, ways = every_way(subject.sequence)

    def run(**options: object) -> list:
        return run_steps(subject.path, steps, kv_blocks=BLOCK, backend="cpu", **options)

    runs = {f"{threads} threads": run(threads=threads) for threads in CPU_THREADS}
    runs["mapped weights"] = run(threads=2, weights="mapped")
    whole = runs[f"{CPU_THREADS[0]} threads"][0][LOGITS]
    failed = [differing(results, ways, whole) for results in runs.values()]
    table.add(
        not any(failed), subject.checkpoint, subject.scheme, str(len(subject.sequence)), *map(verdict, failed)
    )


def quantized_gate(table: Table, base: Subject, quantized: Subject, trained: bool, backend: str) -> None:
    of = (lambda subject: subject.logits) if backend == "reference" else (lambda subject: subject.cpu_logits)
    prompts = list(zip(of(quantized), of(base)[: len(of(quantized))], strict=True))
    positions = [pair for found, expected in prompts for pair in zip(found, expected, strict=True)]
    errors = [nmse(found, expected) for found, expected in positions]
    lost = [margin(expected, found.argmax()) for found, expected in positions]
    # Best tokens closer together than the typical difference of a logit are a tie: either may win.
    after = [
        margin(expected[-1], found[-1].argmax()) / np.sqrt(np.mean((found[-1] - expected[-1]) ** 2))
        for found, expected in prompts
    ]
    decided = all(ratio <= 2 for ratio in after)
    ties = sum(0 < ratio <= 2 for ratio in after)
    bound = QUANTIZED_BOUND[quantized.scheme]
    table.add(
        not trained or (decided and np.mean(errors) <= bound),
        quantized.checkpoint,
        backend,
        quantized.scheme,
        f"{np.mean(errors):.1e}",
        f"{bound:.0e}" if trained else "none",
        f"{max(errors):.1e}",
        f"{sum(gap == 0 for gap in lost)} of {len(lost)}",
        f"{max(lost):.2f}",
        ("same" + (f" ({ties} tie)" if ties else "")) if decided else "differs",
    )


def golden_gate(table: Table, manifest_path: pathlib.Path, subject: Subject | None) -> None:
    manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    name, cases = manifest["checkpoint"], manifest["cases"]
    versions = f"{manifest['transformers']} / {manifest['torch']}"
    if subject is None:
        table.add(False, name, versions, "-", "-", "-", "not measured here")
        return
    expected = [np.load(GOLDEN / case["file"]).reshape(1, -1) for case in cases]
    prompts = [case["ids"] for case in cases]
    figures, same_arg_max = [], True
    for kv_store in ("bf16", "f32"):
        found = [logits[-1:] for logits in evaluate(subject.path, prompts, kv_store)]
        error, agree, positions = worst(found, expected)
        figures.append(error)
        same_arg_max &= agree == positions
    same_artifact = hashlib.sha256(subject.path.read_bytes()).hexdigest() == manifest["artifact_sha256"]
    passed = same_arg_max and figures[0] <= STORED_BOUND and figures[1] <= EXACT_BOUND and same_artifact
    table.add(
        passed,
        name,
        versions,
        f"{figures[0]:.1e}",
        f"{figures[1]:.1e}",
        "same" if same_arg_max else "differs",
        "same" if same_artifact else "differs",
    )


def synthesized(folder: pathlib.Path, option: str, name: str, scheme: str) -> pathlib.Path:
    path = folder / f"{name}-{scheme}.gguf"
    kipp("synthesize", option, name, "--seed", str(SEED), "--scheme", scheme, "--out", path)
    return path


def demo(folder: pathlib.Path) -> pathlib.Path:
    """The shipped checkpoint, unpacked by kipp itself into a home of its own."""
    kipp("run", "--prompt", "Once", "--max-tokens", "1", "--temperature", "0", KIPP_HOME=str(folder))
    return next((folder / "models").glob("kipp-demo*.gguf"))


def quantized(folder: pathlib.Path, path: pathlib.Path, scheme: str) -> pathlib.Path:
    out = folder / f"{path.stem}-{scheme}.gguf"
    kipp("quantize", path, out, "--scheme", scheme)
    return out


def subjects(folder: pathlib.Path, args: argparse.Namespace) -> list[Subject]:
    found = []
    base = args.demo or demo(folder)
    for scheme in SCHEMES:
        found.append(Subject("kipp-demo", scheme, base if scheme == "bf16" else quantized(folder, base, scheme)))
    for shape in ("tiny-tied", "tiny-untied"):
        found += [Subject(shape, scheme, synthesized(folder, "--shape", shape, scheme)) for scheme in SCHEMES]
    for subject in found:
        # Far positions do not depend on how weights are stored.
        subject.prompts = [STORY, CHAT, PASSAGE, *([FAR] if subject.scheme == "bf16" else [])]
        subject.sequence = PASSAGE
    if args.large:
        for scheme in ("bf16", "q8_0"):
            path = synthesized(folder, "--checkpoint", "qwen3-0.6b", scheme)
            found.append(Subject("qwen3-0.6b twin", scheme, path, [STORY, CHAT], STORY))
    return found


def measure(folder: pathlib.Path, args: argparse.Namespace) -> dict[str, Table]:
    tables = {
        "oracle": Table(["checkpoint", "scheme", "positions", "NMSE as stored", "NMSE exact", "arg max"]),
        "invariance": Table(["checkpoint", "scheme", "positions", "cached decode", "recomputation", "all ways"]),
        "quantized": Table(
            [
                "checkpoint", "backend", "scheme", "mean NMSE", "bound", "worst NMSE", "same arg max",
                "largest margin lost", "arg max after the prompts",
            ]  # fmt: skip
        ),
        "golden": Table(
            ["checkpoint", "transformers / torch", "NMSE as stored", "NMSE exact", "arg max", "artifact"]
        ),
        "cpu": Table(
            [
                "checkpoint", "scheme", "positions", "worst exact", "mean as stored", "worst from the oracle", "worst: prefill",
                "every decode position", "truncated and resumed", "batched", "arg max",
            ]  # fmt: skip
        ),
        "cpu invariance": Table(
            ["checkpoint", "scheme", "positions", *(f"{n} threads" for n in CPU_THREADS), "mapped weights"]
        ),
    }
    measured = subjects(folder, args)
    by_name = {(s.checkpoint, s.scheme): s for s in measured}
    print("oracle")
    for subject in measured:
        oracle_gate(tables["oracle"], subject)
    print("invariance")
    for subject in measured:
        invariance_gate(tables["invariance"], subject)
    print("cpu")
    for subject in measured:
        cpu_gate(tables["cpu"], subject)
        cpu_invariance_gate(tables["cpu invariance"], subject)
    print("quantized against bf16")
    for subject in measured:
        if subject.scheme != "bf16":
            base = by_name[subject.checkpoint, "bf16"]
            for backend in ("reference", "cpu"):
                quantized_gate(tables["quantized"], base, subject, subject.checkpoint == "kipp-demo", backend)
    print("golden")
    for path in sorted(GOLDEN.glob("*.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        golden_gate(tables["golden"], path, by_name.get((manifest["checkpoint"], manifest["scheme"])))
    return tables


def report(tables: dict[str, Table], arguments: list[str]) -> str:
    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()

    measured = ["src", "tools", ":!src/tokenizer", ":!src/cli"]  # neither touches a figure
    changed = " with uncommitted changes" if git("status", "--porcelain", "--", *measured) else ""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    command = " ".join(["./dev gate", *arguments])
    return f"""# Gates

Written by `{command}` on {today} at commit {git("rev-parse", "--short", "HEAD")}{changed}; do not edit. NMSE is
sum((a - b)^2) / sum(b^2) over the full vocabulary, the worst position of the prompts in `tools/prompts.py`.
"As stored" rounds keys and values to BF16, "exact" keeps them in float32.

## `reference` against the NumPy oracle

`tools/oracle.py` in float64, reading the artifact through the gguf package. Bounds: as stored {STORED_BOUND:.0e}, exact
{EXACT_BOUND:.0e}, the same arg max at every position.

{tables["oracle"].text()}

## `reference`: the same bits, however the work is cut

One sequence evaluated whole against: one token at a time over the cache; every prefix recomputed; chunks of 7, 32
and 33; batched with another sequence; truncated, overwritten and resumed; all over scrambled block tables. Bound:
bit-equal.

{tables["invariance"].text()}

## `reference` against transformers

Golden logits in `tests/data/golden`, made by `tools/golden.py` (float32, eager attention) after each of its prompts;
bounds as for the oracle.

{tables["golden"].text()}

## `cpu` against `reference`

The prompts read whole, and one sequence decoded token by token, truncated, overwritten and resumed, and batched with
another. "Exact" keeps keys and values in float32: bounds {CPU_EXACT_BOUND["bf16"]:.0e} for bf16 weights and
{CPU_EXACT_BOUND["q8_0"]:.0e} for quantized ones. As stored, a key or value next to a rounding boundary of BF16 may fall to
the other side on either backend, as it does between `reference` and the oracle: bounds {CPU_MEAN_BOUND:.0e} in the mean,
{CPU_ORACLE_BOUND:.0e} from the oracle at the worst position, and {CPU_WORST_BOUND:.0e} from `reference` there. The contract asks for 1e-4. The same
arg max at every position; as stored, a tie is a position where the best two logits are closer than `reference` is to
the oracle there.

{tables["cpu"].text()}

## `cpu`: the same bits, however the work is cut

All the ways of the same gate of `reference`, on each number of threads, and with weights left in the mapping, against
the sequence evaluated whole on one thread. Bound: bit-equal.

{tables["cpu invariance"].text()}

## Quantized against bf16 of the same checkpoint

Bounds hold for trained weights; random ones are listed for comparison. Mean and worst over all positions of the
prompts. Where the arg max differs, bf16 preferred its own by at most the margin lost, in logits. After each prompt
the arg max must be the same, unless bf16's best tokens are closer together than twice the root mean square
difference (a tie).

{tables["quantized"].text()}

## Which test holds which gate of the contract

In CI, on every change; the figures above are of the same gates on more positions. "Twins" are synthetic checkpoints of
both ways of tying.

| gate | `reference` | `cpu` |
| --- | --- | --- |
| an independent oracle | `test_oracle.py`: every intermediate, all schemes | through `reference` |
| `reference`: prefill, every decode position, truncate and resume, batched | | `cpu_against_reference_test`, all schemes; `test_demo.py` on trained weights |
| cached decode against recomputation | `invariance_test` | `invariance_test`, `cpu_invariance_test` |
| scrambled block table, batches, chunks of 1 to 512 | `invariance_test` | `invariance_test`, `cpu_invariance_test` on 1, 2, 3 and 16 threads |
| pooled against private, adopted against cold, forked, evicted | `session_cache_test` | `session_cache_test`, `cpu_invariance_test` |
| requests of an engine alone, in any batch, after others | `engine_test`, `engine_demo_test` | `engine_demo_test` |
| quantized against bf16 | above | above |

`docs/MUTATIONS.md` lists the faults that were put into the sources on purpose and which of these tests caught each.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="also a twin of qwen3-0.6b: minutes, 3 GB of disk")
    parser.add_argument("--demo", type=pathlib.Path, help="this artifact instead of the shipped demo checkpoint")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kipp-gates-") as folder:
        try:
            tables = measure(pathlib.Path(folder), args)
        except subprocess.CalledProcessError as error:
            sys.exit(f"gates: {error.cmd[1]}: {error.stderr.decode().strip()}")
    REPORT.write_text(report(tables, sys.argv[1:]), encoding="utf-8")
    failed = sum(table.failed for table in tables.values())
    print(f"{REPORT.relative_to(REPOSITORY)}: {sum(len(t.rows) for t in tables.values())} gates, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
