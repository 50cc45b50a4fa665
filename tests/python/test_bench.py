"""`kipp bench` as a user meets it, on tiny models. What it counts is checked; times never are."""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIPP = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build")) / "kipp"
QUICK = ["--prefill", "40", "--decode", "2", "--batch", "1,3", "--repetitions", "2"]
SCHEMES = ["bf16", "scale4_gs32"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    for scheme in SCHEMES:
        command = [KIPP, "synthesize", "--shape", "tiny-tied", "--seed", "7", "--scheme", scheme]
        subprocess.run([*command, "--out", folder / f"{scheme}.gguf"], check=True, capture_output=True)
    return folder


def bench(folder, *arguments, models=("bf16",)):
    named = [word for scheme in models for word in ("--model", f"{scheme}.gguf")]
    return subprocess.run([KIPP, "bench", *named, "--allow-synthetic", *arguments], capture_output=True, text=True,
                          timeout=300, cwd=folder)  # fmt: skip


@pytest.fixture(scope="module")
def measured(folder):
    run = bench(folder, *QUICK, "--depth", "0,100", "--json", "out.json", "--csv", "out.csv", "--threads", "2",
                models=SCHEMES)  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout, json.loads((folder / "out.json").read_text())


def test_json_holds_every_case_of_every_model(folder, measured):
    _, report = measured
    assert report["repetitions"] == 2 and not report["interrupted"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", report["date"])
    assert re.fullmatch(r"[0-9a-f]{12}(-changed)?|unknown", report["commit"])
    assert report["cpu"]
    assert [(model["model"], model["scheme"]) for model in report["models"]] == [("tiny-tied", s) for s in SCHEMES]
    for model in report["models"]:
        assert model["backend"] == "cpu" and model["threads"] == 2 and model["weights"] == "packed"
        assert model["file_bytes"] == (folder / model["file"]).stat().st_size
        assert model["read_bandwidth"] > 1e8 and model["multiply_add_peak"] > 1e8
        cases = [(r["test"], r["tokens"], r["depth"], r["batch"]) for r in model["results"]]
        assert cases == [("prefill", 40, 0, 1), ("decode", 2, 0, 1), ("prefill", 40, 100, 1), ("decode", 2, 100, 1),
                         ("decode", 2, 0, 3)]  # fmt: skip
        for result in model["results"]:
            rates = [result["batch"] * result["tokens"] / seconds for seconds in result["seconds"]]
            assert len(rates) == 2 and min(rates) > 0
            median = sum(result["seconds"]) / 2
            assert result["tokens_per_second"] == pytest.approx(result["batch"] * result["tokens"] / median)
            assert result["tokens_per_second_min"] == pytest.approx(min(rates))
            assert result["tokens_per_second_max"] == pytest.approx(max(rates))


def test_bytes_and_operations_follow_from_the_file(folder, measured):
    for model in measured[1]["models"]:
        shown = subprocess.run([KIPP, "inspect", folder / model["file"], "--json"], capture_output=True, check=True)
        # The head is the embedding, so a step that returns logits reads all tensors.
        assert model["weight_bytes_per_step"] == json.loads(shown.stdout)["weight_bytes"]
        by_case = {(r["test"], r["depth"], r["batch"]): r for r in model["results"]}
        kv = model["kv_bytes_per_position"]
        for depth in 0, 100:
            decode = by_case["decode", depth, 1]
            assert decode["bytes"] == 2 * model["weight_bytes_per_step"] + kv * (2 * depth + 3)
        assert by_case["decode", 0, 3]["bytes"] == 2 * model["weight_bytes_per_step"] + 3 * kv * 3
        assert by_case["decode", 0, 3]["flops"] == 3 * by_case["decode", 0, 1]["flops"]
        for result in model["results"]:
            median = sum(result["seconds"]) / 2
            assert result["bytes_per_second"] == pytest.approx(result["bytes"] / median)
            assert result["flops_per_second"] == pytest.approx(result["flops"] / median)
            for share, rate, peak in [("share_of_read_bandwidth", "bytes_per_second", "read_bandwidth"),
                                      ("share_of_multiply_add_peak", "flops_per_second", "multiply_add_peak")]:
                assert result[share] == pytest.approx(result[rate] / model[peak])
    bf16, scale4 = measured[1]["models"]
    assert bf16["kv_bytes_per_position"] == scale4["kv_bytes_per_position"]
    assert bf16["weight_bytes_per_step"] > scale4["weight_bytes_per_step"]
    flops = [[result["flops"] for result in model["results"]] for model in (bf16, scale4)]
    assert flops[0] == flops[1]


def test_csv_has_a_line_per_result(folder, measured):
    with open(folder / "out.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    expected = [(model, result) for model in measured[1]["models"] for result in model["results"]]
    assert len(lines) == len(expected)
    for line, (model, result) in zip(lines, expected):
        assert line["commit"] == measured[1]["commit"] and line["cpu"] == measured[1]["cpu"]
        assert line["scheme"] == model["scheme"] and int(line["threads"]) == 2
        assert (line["test"], int(line["depth"]), int(line["batch"])) == (result["test"], result["depth"], result["batch"])
        assert float(line["tokens_per_second"]) == pytest.approx(result["tokens_per_second"], rel=1e-3)


def test_the_table_shows_both_models_and_the_machine(measured):
    lines = measured[0].splitlines()
    heads = [line for line in lines if line.startswith("tiny-tied (synthetic)")]
    assert [head.split()[2].rstrip(",") for head in heads] == SCHEMES
    assert all("GB/s" in head and "GFLOP/s" in head for head in heads)
    assert sum(line.startswith("decode") for line in lines) == 6


def test_default_depths_that_do_not_fit_are_left_out_by_name(folder):
    run = bench(folder, "--prefill", "0", "--decode", "1", "--batch", "1", "--repetitions", "1", "--json", "depths.json")
    assert run.returncode == 0, run.stderr
    assert "depth 4096 is left out: tiny-tied has 2048 positions" in run.stderr
    assert "depth 16384 is left out" in run.stderr
    (model,) = json.loads((folder / "depths.json").read_text())["models"]
    assert model["depths_left_out"] == [4096, 16384]
    assert [result["depth"] for result in model["results"]] == [0, 1024]


def test_the_last_position_can_be_measured(folder):
    run = bench(folder, "--prefill", "0", "--decode", "2", "--depth", "2046", "--batch", "1", "--repetitions", "1")
    assert run.returncode == 0, run.stderr


REFUSALS = [
    (["--depth", "2047", "--prefill", "0", "--decode", "2"],
     "--depth 2047: expected at most the 2048 positions of tiny-tied, found 2049 with the 2 tokens that are measured"),
    (["--prefill", "3000"], "--depth 0: expected at most the 2048 positions of tiny-tied, found 3000"),
    (["--batch-depth", "2048"], "--batch-depth 2048: expected at most the 2048 positions"),
    (["--depth", "1,x"], '--depth: expected a whole number from -2147483648 to 2147483647, found "x"'),
    (["--depth", "-1"], "--depth: expected at least 0, found -1"),
    (["--batch", "0"], "--batch: expected at least 1, found 0"),
    (["--batch", "1,129"], "--batch: expected at most 128 sequences on cpu, found 129"),
    (["--repetitions", "0"], "--repetitions: expected at least 1, found 0"),
    (["--prefill", "0", "--decode", "0"], "expected something to measure"),
    (["--backend", "gpu"], 'backend: expected one of cpu, reference, cuda, webgpu; found "gpu"'),
    (["--threads", "-1"], "--threads: expected at least 0, found -1"),
    (["--weights", "gone"], "--weights: expected packed or mapped"),
    (["--scheme", "q8_0"], "--scheme: expected q8_0, found bf16 in bf16.gguf"),
    (["--scheme", "q9"], 'found "q9"'),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "sentence"), REFUSALS, ids=[" ".join(a) for a, _ in REFUSALS])
def test_bad_values_are_refused_before_anything_is_measured(folder, arguments, sentence):
    run = bench(folder, *arguments)
    assert run.returncode == 2 and run.stdout == ""
    assert sentence in run.stderr and run.stderr.count("\n") == 1


def test_files_that_cannot_be_written_are_refused_before_anything_is_measured(folder):
    run = bench(folder, "--json", "bf16.gguf/out.json")
    assert run.returncode == 1 and run.stdout == "" and "bf16.gguf" in run.stderr


def test_ctrl_c_keeps_what_was_measured(folder):
    run = subprocess.Popen([KIPP, "bench", "--model", "bf16.gguf", "--allow-synthetic", "--prefill", "8", "--decode", "2",
                            "--depth", "0", "--batch", "1", "--repetitions", "100000", "--json", "cut.json"],
                           cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    for line in run.stderr:
        if re.match(r"tiny-tied bf16: .* % of 200000", line):  # shown after a repetition at the earliest
            break
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    report = json.loads((folder / "cut.json").read_text())
    assert report["interrupted"]
    assert len(report["models"][0]["results"]) >= 1 and "prefill" in out
