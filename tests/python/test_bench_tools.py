"""What tools/bench.py draws and tools/bench_rival.py computes, over stand-ins that measure nothing."""

import csv
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import bench  # noqa: E402
import bench_rival  # noqa: E402

# Speeds by call, one after the other. Each stand-in logs its calls into the same file.
STAND_IN = """#!{python}
import json, os, pathlib, sys
folder = pathlib.Path(__file__).parent
with open(folder / "calls", "a") as log:
    log.write("{name}\\n")
flags = dict(zip(sys.argv[1:-1], sys.argv[2:]))
number = (folder / "calls").read_text().split().count("{name}")
{body}
"""
KIPP = """
decode = int(flags["--decode"])
result = {"test": "decode" if decode else "prefill", "tokens": decode or int(flags["--prefill"]),
          "depth": int(flags["--depth"]), "batch": 1, "tokens_per_second": 10.0 * number,
          "share_of_read_bandwidth": 0.1 * number, "share_of_multiply_add_peak": 0.05 * number}
report = {"commit": "abc", "date": "2026-11-30T00:00:00Z", "cpu": "a CPU",
          "models": [{"model": "m", "scheme": "q8_0", "results": [result]}]}
pathlib.Path(flags["--json"]).write_text(json.dumps(report))
"""
LLAMA = """
print(json.dumps([{"build_commit": "def", "n_prompt": int(flags["-p"]), "n_gen": int(flags["-n"]),
                   "n_depth": int(flags["-d"]), "flash_attn": flash, "avg_ts": (5.0 + flash) * number}
                  for flash in map(int, flags["-fa"].split(","))]))
"""


@pytest.fixture
def stand_ins(tmp_path):
    for name, body in ("kipp", KIPP), ("llama-bench", LLAMA):
        path = tmp_path / name
        path.write_text(STAND_IN.format(python=sys.executable, name=name, body=body))
        path.chmod(0o755)
    return tmp_path


def rival(folder, *arguments):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "bench_rival.py", "--kipp", folder / "kipp", "--llama-bench",
         folder / "llama-bench", *arguments, "model.gguf"], capture_output=True, text=True)  # fmt: skip


def test_rounds_are_paired_and_take_turns(stand_ins):
    run = rival(stand_ins, "--rounds", "3", "--prefill", "0", "--decode", "16", "--depth", "64", "--out", stand_ins / "out")
    assert run.returncode == 0, run.stderr
    calls = (stand_ins / "calls").read_text().split()
    assert calls == ["kipp", "llama-bench", "llama-bench", "kipp", "kipp", "llama-bench"]
    (summary,) = json.loads((stand_ins / "out.json").read_text())["summaries"]
    assert (summary["test"], summary["tokens"], summary["depth"], summary["rounds"]) == ("decode", 16, 64, 3)
    # kipp 10, 20, 30; llama.cpp without flash attention 5, 10, 15, with it 6, 12, 18, which is its best.
    assert summary["kipp"] == 20 and summary["llama"] == 12 and summary["llama_flash_attention"] == "1"
    assert summary["ratio"] == pytest.approx(10 / 6)
    # kipp's share of 0.1 at 10 tok/s: the bandwidth allows 100.
    assert summary["kipp_share"] == pytest.approx(0.2) and summary["llama_share"] == pytest.approx(0.12)
    (line,) = csv.DictReader((stand_ins / "out.csv").read_text().splitlines())
    assert float(line["ratio"]) == pytest.approx(10 / 6)
    assert "| m | q8_0 | decode 16 | 64 | 20.0 | 12.0 | 1.67 (1.67 to 1.67) | 20% | 12% |" in run.stdout


def test_prefill_is_measured_once_and_decode_at_every_depth(stand_ins):
    run = rival(stand_ins, "--rounds", "1", "--depth", "0,1024", "--flash-attention", "0")
    assert run.returncode == 0, run.stderr
    rows = [line.split(" | ")[2:4] for line in run.stdout.splitlines() if line.startswith("| m ")]
    assert rows == [["prefill 512", "0"], ["decode 128", "0"], ["decode 128", "1,024"]]


def test_the_ratio_is_the_median_of_the_rounds():
    found = bench_rival.Comparison("m", "bf16", "decode", 1, 0, kipp=[10, 20, 90], llama={"0": [5, 5, 90]}, peak=[100] * 3)
    assert found.summary()["ratio"] == 2 and found.summary()["ratio_min"] == 1 and found.summary()["ratio_max"] == 4


def test_a_failing_rival_is_named(stand_ins):
    (stand_ins / "llama-bench").write_text("#!/bin/sh\necho 'no such model' >&2\nexit 1\n")
    run = rival(stand_ins, "--rounds", "1")
    assert run.returncode != 0 and "llama-bench failed: ['no such model']" in run.stderr


def report(batches=(1, 2, 4)):
    def results(speed):
        for depth in 0, 1024, 4096:
            for test in "prefill", "decode":
                yield {"test": test, "depth": depth, "batch": 1, "tokens_per_second": speed / (1 + depth / 1000),
                       "share_of_read_bandwidth": 0.9, "share_of_multiply_add_peak": 0.8}  # fmt: skip
        for batch in batches[1:]:
            yield {"test": "decode", "depth": 0, "batch": batch, "tokens_per_second": speed * batch}

    return {"cpu": "a <CPU>", "models": [{"model": "m", "scheme": scheme, "threads": 2, "results": list(results(speed))}
                                         for scheme, speed in (("bf16", 10), ("q8_0", 20))]}  # fmt: skip


def words(svg):
    return [element.text for element in xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_charts_show_every_model_and_place():
    drawn = bench.charts(report())
    assert set(drawn) == {"bench_depth.svg", "bench_share.svg", "bench_batch.svg"}
    for svg in drawn.values():
        assert {"bf16", "q8_0"} <= set(words(svg)), "one model, named in the title"
    other = json.loads(json.dumps(report()))
    other["models"][1]["model"] = "n"
    assert {"m bf16", "n q8_0"} <= set(words(bench.charts(other)["bench_batch.svg"]))
    assert words(drawn["bench_depth.svg"]).count("4k") == 2, "once in each panel"
    assert {"1", "2", "4"} <= set(words(drawn["bench_batch.svg"]))
    lines = list(xml.fromstring(drawn["bench_batch.svg"]).iter("{http://www.w3.org/2000/svg}polyline"))
    assert [len(line.get("points").split()) for line in lines] == [3, 3]


def test_no_chart_of_batches_without_batches():
    assert set(bench.charts(report(batches=(1,)))) == {"bench_depth.svg", "bench_share.svg"}


def test_bench_draws_again_from_a_report(tmp_path):
    (tmp_path / "in.json").write_text(json.dumps(report()))
    run = subprocess.run([sys.executable, ROOT / "tools" / "bench.py", "--from", tmp_path / "in.json", "--out",
                          tmp_path / "plots"], capture_output=True, text=True)  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["bench_batch.svg", "bench_depth.svg", "bench_share.svg"]
