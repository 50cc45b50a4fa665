"""The reckoning of a tiered cache's bytes, the page and plots of `./dev evidence`, and the commands it measures with."""

import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import evidence  # noqa: E402
from kv_arithmetic import Policy, preset_words  # noqa: E402

KIPP = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build")) / "kipp"


# --- arithmetic


def test_bits_of_a_policy_by_hand():
    policy = Policy.parse("sink=1:int8,recent=2:int8,mid=3:int8/int4,far=int4/int2")
    # 10 blocks: 1 open (BF16), 1 sink (8/8), 2 recent (8/8), 3 mid (8/4), 3 far (4/2); three pairs of parameters.
    assert policy.band_blocks(320) == {"open": 1, "sink": 1, "recent": 2, "mid": 3, "far": 3}
    assert policy.bits(320, 28) == pytest.approx((16 + 8 + 2 * 8 + 3 * 6 + 3 * 3) / 10 + 0.375)
    # Its last block is open however little of it is filled.
    assert policy.bytes(289, 28) == policy.bytes(320, 28) < policy.bytes(321, 28)


def test_a_reader_that_comes_later_keeps_planes():
    # Recent blocks are read as BF16 and later as int4: both are there. Sinks never leave their band.
    policy = Policy.parse("sink=1:bf16,recent=1:bf16,far=int4")
    assert policy.block_bits("recent", 1) == 20 and policy.block_bits("sink", 1) == 16
    assert policy.block_bits("far", 1) == 4 and policy.block_bits("open", 1) == 16


def test_layers_apart():
    words = "sink=1:int8,recent=8:int8,mid=8:int8/int4,far=int4"
    up, exempt = Policy.parse(words + ",up=0+-1"), Policy.parse(words + ",exempt=0+-1")
    assert up.block_bits("far", 8) == pytest.approx((6 * 4 + 2 * 6) / 8)
    assert up.block_bits("mid", 8) == pytest.approx((6 * 6 + 2 * 8) / 8)
    assert exempt.block_bits("far", 8) == pytest.approx((6 * 4 + 2 * 16) / 8)
    # The int2 that a layer apart is read at costs parameters in all.
    assert Policy.parse("far=int4/int2").parameter_bits() == 0.375
    assert Policy.parse("far=bf16/int4").parameter_bits() == 0.125 and Policy.parse("bf16").parameter_bits() == 0


def test_presets_keep_their_promises():
    found = evidence.measure_bits()
    assert list(found["presets"]) == list(preset_words()) == ["bf16", *evidence.TIERED]
    targets = evidence.Targets()
    evidence.bits_region(found, targets)
    assert len(targets.rows) == 4 and targets.missed == []
    bf16 = found["presets"]["bf16"]
    assert bf16["bits"] == {str(n): 16 for n in evidence.CONTEXTS}
    assert bf16["bytes"]["32768"] == 32768 * 28 * 2 * 1024 * 2
    for one in found["presets"].values():
        assert sum(one["bands"]["8192"].values()) == pytest.approx(one["bytes"]["8192"])


def test_what_is_not_a_policy():
    with pytest.raises(ValueError, match="found near"):
        Policy.parse("near=2:int8")


# --- the page


def kl(mean, same_top=1.0):
    return {"mean": mean, "standard_error": 0.0, "p999": 9 * mean, "max": 10 * mean, "same_top": same_top}


def stand_in(mean=0.001, same_top=0.99, given=8, decode=1.1, prefill=1.05):
    """Figures as if they were measured; the tiered preset's can be made bad."""
    means = {"bf16": 0.0, "int8": 1e-5, "tiered": mean, "tiered-max": 0.004}
    presets = {
        name: {
            "tokens": 100, "perplexity": 30.0, "against_perplexity": 30.0,
            "kl": kl(m, same_top if name == "tiered" else 1.0),
            "by_position": [{"from": at, "to": 2 * at, "tokens": 50, "kl": kl(m * at / 64)} for at in (32, 64, 128)],
        }
        for name, m in means.items()
    }  # fmt: skip
    ranges = [{"from": low, "to": high, "asked": 8, "given": 8, "nll": 0.01} for low, high in evidence.RECALL_RANGES]
    recall = {name: [dict(one) for one in ranges] for name in means}
    recall["tiered"][2]["given"] = given
    cell = {"kl": 0.002, "same_top": 0.99}
    whole = {f"{side} {width} {how}": cell for side in "KV" for width in evidence.WIDTHS for how in ("rotated", "plain")}
    speed = {"decode": {"1024": 10.0, "4096": 5.0}, "prefill": {"1024": 90.0, "4096": 80.0}}
    return {
        "bits": evidence.measure_bits(),
        "divergence": {"model": "kipp-demo", "scheme": "bf16", "backend": "cpu", "text": "t.txt", "tokens": 101,
                       "decoded": 64, "decoded_is_chunked": dict.fromkeys(evidence.TIERED, True), "presets": presets},
        "floor": {"model": "kipp-demo", "scheme": "bf16", "backend": "cpu", "tokens": 127, "kl": kl(2e-8)},
        "recall": {"model": "kipp-demo", "scheme": "bf16", "questions": 8, "presets": recall},
        "sensitivity": {"tokens": 64, "layers": 2, "whole": whole,
                        "by_layer": {f"{side} {width}": [cell, cell] for side in "KV" for width in ("int4", "int2")}},
        "speed": {"cpu": "a CPU", "commit": "abc", "date": "d", "model": "m", "scheme": "q8_0", "threads": 2,
                  "rounds": 3,
                  "presets": {"bf16": speed, "tiered": {"decode": {"1024": 11.0, "4096": 9.0},
                                                        "prefill": {"1024": 90.0, "4096": 84.0}}},
                  "ratios": {"tiered": {"decode": {"1024": decode, "4096": 1.8},
                                        "prefill": {"1024": 1.0, "4096": prefill}}}},
    }  # fmt: skip


def test_the_page_gets_every_region_and_keeps_its_prose(tmp_path):
    page = tmp_path / "KV.md"
    prose = (ROOT / "docs" / "KV.md").read_text()
    page.write_text(prose)
    targets = evidence.write(stand_in(), page, tmp_path / "plots")
    assert targets.missed == []
    text = page.read_text()
    for name in ["targets", *evidence.PARTS]:
        begin, end = text.index(f"<!-- {name}:begin -->"), text.index(f"<!-- {name}:end -->")
        assert ("| ---" if name != "floor" else "mean KL of 2.0e-08") in text[begin:end], name

    def without_regions(page_text):
        return re.sub(r"(<!-- (\w+):begin -->).*?(<!-- \2:end -->)", r"\1\3", page_text, flags=re.S)

    assert without_regions(text) == without_regions(prose)
    assert "9.0 (1.80 x)" in text and "same to the last bit" in text
    for name in "kv_divergence.svg", "kv_memory.svg":
        assert xml.parse(tmp_path / "plots" / name).getroot().tag.endswith("svg")
        assert f"plots/{name}" in text


@pytest.mark.parametrize(
    ("worse", "what"),
    [
        ({"mean": 0.02}, "mean KL, tiered"),
        ({"same_top": 0.97}, "top-1 agreement, tiered"),
        ({"given": 7}, "recall at every distance, tiered"),
        ({"decode": 0.99}, "decode from 1k on, tiered"),
        ({"prefill": 0.94}, "prefill, tiered"),
    ],
)
def test_a_missed_target_is_said(worse, what, tmp_path):
    targets = evidence.write(stand_in(**worse), tmp_path / "KV.md", tmp_path / "plots")
    assert len(targets.missed) == 1 and targets.missed[0].startswith(what)
    once = (tmp_path / "KV.md").read_text()
    evidence.write(stand_in(**worse), tmp_path / "KV.md", tmp_path / "plots")
    assert (tmp_path / "KV.md").read_text() == once, "a page that was not there is like one that was"
    assert "**missed**" in (tmp_path / "KV.md").read_text()


def test_figures_that_differ_token_by_token_are_said(tmp_path):
    figures = stand_in()
    figures["divergence"]["decoded_is_chunked"]["tiered-max"] = False
    targets = evidence.write(figures, tmp_path / "KV.md", tmp_path / "plots")
    assert targets.missed == ["token by token against chunks: different, asked for equal"]
    assert "**the figures differ.**" in (tmp_path / "KV.md").read_text()


def test_the_page_in_the_repository_is_what_its_figures_give(tmp_path):
    page = tmp_path / "KV.md"
    page.write_text((ROOT / "docs" / "KV.md").read_text())
    figures = json.loads((ROOT / "docs" / "plots" / "kv_evidence.json").read_text())
    missed = evidence.write(figures, page, tmp_path / "plots").missed
    assert page.read_text() == (ROOT / "docs" / "KV.md").read_text()
    assert figures["bits"] == json.loads(json.dumps(evidence.measure_bits())), "presets changed: run ./dev evidence"
    # Speeds are the machine's as much as the cache's: the page says what they miss, and no test asks for them.
    without_speed = {part: found for part, found in figures.items() if part != "speed"}
    assert evidence.write(without_speed, tmp_path / "other.md", tmp_path / "plots").missed == []
    assert all(one.startswith(("decode", "prefill")) for one in missed)


def test_recall_cases_lie_where_they_should():
    cases = evidence.recall_cases(2, 600)
    assert cases == evidence.recall_cases(2, 600)
    assert [case["range"] for case in cases][:4] == [[16, 64]] * 2 + [[64, 256]] * 2
    assert all(case["range"][0] < 1024 for case in cases), "those that do not fit are left out"
    for case in cases:
        digits = re.search(r"\d+", case["answer"]).group()
        assert f"is {digits}." in case["prompt"]


# --- the commands


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evidence")
    command = [KIPP, "synthesize", "--shape", "tiny-tied", "--seed", "7", "--out", folder / "tiny.gguf"]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "ids.json").write_text(json.dumps(list(range(1000, 1160))))
    return folder


def kipp(folder, command, *arguments):
    return subprocess.run(
        [KIPP, command, "--model", folder / "tiny.gguf", "--allow-synthetic", *arguments],
        capture_output=True, text=True, timeout=300, cwd=folder,
    )  # fmt: skip


def report(folder, command, *arguments):
    run = kipp(folder, command, "--json", *arguments)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_bf16_beside_bf16_differs_by_nothing(folder):
    found = report(folder, "perplexity", "--tokens", "ids.json", "--context", "80", "--against-kv", "bf16")
    assert found["kl"] == {"mean": 0, "standard_error": 0, "p999": 0, "max": 0, "same_top": 1}
    assert (found["kv"], found["against_kv"], found["against_scheme"]) == ("bf16", "bf16", None)
    assert found["against_perplexity"] == found["perplexity"] and found["against_nll"] == found["nll"]


@pytest.mark.parametrize("kv", ["int8", "sink=0:int4,recent=1:int8,far=int4/int2"])
def test_a_tiered_cache_differs_by_little_and_alike_in_chunks(folder, kv):
    text = ["--tokens", "ids.json", "--context", "160", "--kv", kv, "--kv-unproven", "--against-kv", "bf16"]
    chunks, decoded = report(folder, "perplexity", *text), report(folder, "perplexity", *text, "--pseudo-decode")
    same = ("nll", "kl", "against_nll", "by_position")
    assert {key: chunks[key] for key in same} == {key: decoded[key] for key in same}
    assert chunks["by_position"][0]["kl"]["max"] == 0, "a query's own block is BF16"
    assert 0 < chunks["kl"]["mean"] < 0.5
    assert chunks["kv"] == kv


def test_a_run_from_command_to_page(folder, monkeypatch):
    monkeypatch.setattr(evidence, "TIERED", ["tiered"])
    monkeypatch.setattr(evidence, "WIDTHS", ["int4"])
    monkeypatch.setattr(evidence, "NARROW", ["int2"])
    counts = {"tokens": 70, "decoded": 40, "floor-tokens": 8, "sensitivity-tokens": 40}
    flags = [word for name, n in counts.items() for word in (f"--{name}", str(n))]
    flags += ["--model", str(folder / "tiny.gguf"), "--allow-synthetic", "--backend", "cpu"]
    parts = ["floor", "divergence", "sensitivity"]
    monkeypatch.setattr(sys, "argv", ["evidence.py", *parts, "--kipp", str(KIPP), "--out", str(folder / "out"), *flags])
    assert evidence.main() == 0
    figures = json.loads((folder / "out" / "plots" / "kv_evidence.json").read_text())
    assert list(figures) == parts
    assert 0 < figures["floor"]["kl"]["max"] < 1e-6
    assert figures["divergence"]["presets"]["tiered"]["kl"]["mean"] < 0.01
    assert figures["divergence"]["decoded_is_chunked"] == {"tiered": True}
    layers = figures["sensitivity"]["layers"]
    assert [len(cells) for cells in figures["sensitivity"]["by_layer"].values()] == [layers, layers]
    assert all(cell["kl"] > 0 for cells in figures["sensitivity"]["by_layer"].values() for cell in cells)
    page = (folder / "out" / "KV.md").read_text()
    assert "| keys | int4 |" in page and "met" in page and "missed" not in page


def test_perplexity_compares_with_one_thing(folder):
    run = kipp(folder, "perplexity", "--tokens", "ids.json", "--against", "x", "--against-kv", "bf16")
    assert run.returncode == 2 and "--against" in run.stderr
    run = kipp(folder, "perplexity", "--tokens", "ids.json", "--against-kv", "int3")
    assert run.returncode == 2 and run.stderr.startswith("kipp perplexity: kv: expected bf16"), "before a model is opened"


def test_recall_counts_what_greedy_decoding_writes(folder):
    prompt = "The number of Mira is 4821. What is the number of Mira?"
    run = kipp(folder, "run", "--prompt", prompt, "--max-tokens", "1", "--temperature", "0")
    assert run.returncode == 0, run.stderr
    cases = [{"prompt": prompt, "answer": run.stdout.rstrip("\n"), "note": 1}, {"prompt": prompt, "answer": " 4821"}]
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    found = report(folder, "recall", "--cases", "cases.jsonl")
    assert [case["given"] for case in found["cases"]] == [True, False]
    assert (found["asked"], found["given"], found["kv"], found["interrupted"]) == (2, 1, "bf16", False)
    assert found["cases"][0]["nll"] < found["cases"][1]["nll"]
    text = kipp(folder, "recall", "--cases", "cases.jsonl").stdout
    assert "1 of 2 answers given (50.00 %)" in text


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "cases.jsonl: expected at least one case, found none"),
        ('{"prompt": "a"}', "cases.jsonl: line 1: answer: expected a text, found none"),
        ('{"prompt": 3, "answer": "b"}', "cases.jsonl: line 1: prompt: expected a text, found 3"),
        ("[]", "cases.jsonl: line 1: expected an object, found []"),
        ('{"prompt": "a", "answer": "b"', "cases.jsonl: line 1"),
    ],
)
def test_recall_refuses_other_files(folder, line, sentence):
    (folder / "cases.jsonl").write_text(line + "\n")
    run = kipp(folder, "recall", "--cases", "cases.jsonl")
    assert run.returncode != 0 and run.stdout == ""
    assert run.stderr.strip().splitlines()[-1].startswith("kipp recall: " + sentence)
