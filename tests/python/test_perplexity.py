"""`kipp perplexity` against NumPy over the logits of tools/oracle.py, which shares no line with the engine, and over
the logits it saves itself."""

import functools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from oracle import Oracle  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIPP = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build")) / "kipp"
HEADER, VOCABULARY = 160, 151936
TOKENS = random.Random(3).choices(range(151669), k=100)
WINDOWS = ["--context", "40", "--stride", "24"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twins of equal weights, the tokens as a file."""
    folder = tmp_path_factory.mktemp("perplexity")
    for shape, scheme in [("tiny-tied", "bf16"), ("tiny-tied", "q8_0"), ("tiny-untied", "bf16")]:
        command = [KIPP, "synthesize", "--shape", shape, "--seed", "7", "--scheme", scheme]
        subprocess.run([*command, "--out", folder / f"{shape}-{scheme}.gguf"], check=True, capture_output=True)
    (folder / "ids.json").write_text(json.dumps(TOKENS))
    return folder


def perplexity(folder, *arguments, model="tiny-tied-bf16"):
    return subprocess.run(
        [KIPP, "perplexity", "--model", folder / f"{model}.gguf", "--allow-synthetic", *arguments],
        capture_output=True, text=True, timeout=300, cwd=folder,
    )  # fmt: skip


def report(folder, *arguments, model="tiny-tied-bf16"):
    run = perplexity(folder, "--json", *arguments, model=model)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def refusal(folder, *arguments, code=1, model="tiny-tied-bf16"):
    run = perplexity(folder, *arguments, model=model)
    assert run.returncode == code and run.stdout == "", run.stderr
    sentence = run.stderr.strip().splitlines()[-1]
    assert sentence.startswith("kipp perplexity: ")
    return sentence


@pytest.fixture(scope="module")
def saved(folder):
    """What the bf16 twin saved of the text."""
    path = folder / "bf16.logits"
    report(folder, "--tokens", "ids.json", *WINDOWS, "--save-logits", path)
    return path


def rows_of(path):
    return np.fromfile(path, "<f4", offset=HEADER).reshape(-1, VOCABULARY).astype(np.float64)


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def windows(n_tokens, context, stride):
    """(begin, first predicted, end), written anew."""
    scored = 1
    for begin in range(0, n_tokens, stride):
        end = min(begin + context, n_tokens)
        yield begin, max(scored, begin + 1), end
        scored = end
        if end == n_tokens:
            return


@functools.cache
def oracle_rows(path, context, stride):
    """Logits of every prediction, its target, and how many tokens it has seen."""
    oracle = Oracle(path)
    logits, targets, seen = [], [], []
    for begin, first, end in windows(len(TOKENS), context, stride):
        rows = oracle.forward(TOKENS[begin:end])
        logits.append(rows[first - 1 - begin : end - 1 - begin])
        targets += TOKENS[first:end]
        seen += range(first - begin, end - begin)
    return np.concatenate(logits), np.array(targets), np.array(seen)


@pytest.mark.parametrize("model", ["tiny-tied-bf16", "tiny-untied-bf16", "tiny-tied-q8_0"])
def test_equals_numpy_over_the_oracles_logits(folder, model):
    found = report(folder, "--tokens", "ids.json", *WINDOWS, model=model)
    logits, targets, seen = oracle_rows(folder / f"{model}.gguf", 40, 24)
    nll = -log_softmax(logits)[np.arange(len(targets)), targets]
    assert found["tokens"] == len(targets) == len(TOKENS) - 1
    assert found["nll"] == pytest.approx(nll.mean(), rel=1e-4)
    assert found["nll_standard_error"] == pytest.approx(nll.std(ddof=1) / np.sqrt(len(nll)), rel=1e-3)
    assert found["perplexity"] == pytest.approx(np.exp(found["nll"]))
    assert found["perplexity_standard_error"] == pytest.approx(found["perplexity"] * found["nll_standard_error"])
    for bucket in found["by_position"]:
        inside = (bucket["from"] <= seen) & (seen < bucket["to"])
        assert bucket["tokens"] == inside.sum() > 0
        assert bucket["nll"] == pytest.approx(nll[inside].mean(), rel=1e-4)
    assert sum(bucket["tokens"] for bucket in found["by_position"]) == len(targets)


def test_saved_logits_are_those_of_the_oracle(folder, saved):
    expected, _, _ = oracle_rows(folder / "tiny-tied-bf16.gguf", 40, 24)
    found = rows_of(saved)
    assert found.shape == expected.shape
    assert np.sum((found - expected) ** 2) / np.sum(expected**2) <= 5e-5


def test_a_run_against_itself_diverges_by_nothing(folder, saved):
    ways = [], ["--pseudo-decode"], ["--threads", "1"], ["--weights", "mapped"]
    for flags in ways:
        found = report(folder, "--tokens", "ids.json", *WINDOWS, "--against", saved, *flags)
        assert found["kl"] == {"mean": 0, "standard_error": 0, "p999": 0, "max": 0, "same_top": 1}, flags
        assert found["against_scheme"] == "bf16"


def test_divergence_of_q8_0_equals_numpys(folder, saved):
    own = folder / "q8_0.logits"
    found = report(folder, "--tokens", "ids.json", *WINDOWS, "--against", saved, "--save-logits", own,
                   model="tiny-tied-q8_0")  # fmt: skip
    p, q = log_softmax(rows_of(saved)), log_softmax(rows_of(own))
    kl = (np.exp(p) * (p - q)).sum(axis=1)
    same = (p.argmax(axis=1) == q.argmax(axis=1)).mean()
    assert kl.mean() > 1e-6, "the two schemes do differ"
    assert found["kl"]["mean"] == pytest.approx(kl.mean(), rel=1e-6)
    assert found["kl"]["standard_error"] == pytest.approx(kl.std(ddof=1) / np.sqrt(len(kl)), rel=1e-6)
    assert found["kl"]["p999"] == pytest.approx(np.quantile(kl, 0.999, method="inverted_cdf"), rel=1e-6)
    assert found["kl"]["max"] == pytest.approx(kl.max(), rel=1e-6)
    assert found["kl"]["same_top"] == pytest.approx(same)
    seen = oracle_rows(folder / "tiny-tied-bf16.gguf", 40, 24)[2]
    for bucket in found["by_position"]:
        inside = (bucket["from"] <= seen) & (seen < bucket["to"])
        assert bucket["kl"]["mean"] == pytest.approx(kl[inside].mean(), rel=1e-6)


def test_text_and_its_token_ids_are_the_same(folder):
    text = "Once upon a time there was a café."
    (folder / "text.txt").write_text(text)
    tokenized = subprocess.run([KIPP, "run", "--model", folder / "tiny-tied-bf16.gguf", "--allow-synthetic", "--json",
                                "--max-tokens", "0", "--file", folder / "text.txt"], capture_output=True)  # fmt: skip
    n_tokens = json.loads(tokenized.stdout)["usage"]["prompt_tokens"]
    found = report(folder, "--file", "text.txt")
    assert found["text_tokens"] == n_tokens and found["tokens"] == n_tokens - 1
    assert found["context"] == found["stride"] == n_tokens


def test_ids_come_in_several_forms(folder):
    expected = report(folder, "--tokens", "ids.json", "--limit", "20")
    assert expected["text_tokens"] == 20
    for name, text in [("lines", "\n".join(map(str, TOKENS))), ("commas", ",".join(map(str, TOKENS[:20])) + "\n")]:
        (folder / name).write_text(text)
        found = report(folder, "--tokens", name, "--limit", "20")
        assert found["nll"] == expected["nll"]


def test_the_text_report_says_the_same(folder, saved):
    run = perplexity(folder, "--tokens", "ids.json", *WINDOWS, "--against", saved, model="tiny-tied-q8_0")
    found = report(folder, "--tokens", "ids.json", *WINDOWS, "--against", saved, model="tiny-tied-q8_0")
    assert run.returncode == 0
    assert "tiny-tied q8_0: 99 of 100 tokens scored, windows of 40 every 24" in run.stdout
    assert f"perplexity {found['perplexity']:.4f} +- " in run.stdout
    assert f"KL against the saved bf16: mean {found['kl']['mean']:.3g} +- " in run.stdout


def test_saved_logits_of_something_else_are_refused(folder, saved):
    against = ["--against", saved]
    assert "expected logits of the same checkpoint and revision (tiny-untied), found another (tiny-tied)" in refusal(
        folder, "--tokens", "ids.json", *WINDOWS, *against, model="tiny-untied-bf16")  # fmt: skip
    sentence = "expected logits of the same tokens, --context and --stride, found others"
    assert sentence in refusal(folder, "--tokens", "ids.json", "--context", "41", "--stride", "24", *against)
    assert sentence in refusal(folder, "--tokens", "ids.json", "--context", "40", *against)
    assert sentence in refusal(folder, "--tokens", "ids.json", *WINDOWS, "--limit", "99", *against)
    assert "another kind of file" in refusal(folder, "--tokens", "ids.json", "--against", "tiny-tied-bf16.gguf")
    assert "missing: cannot" in refusal(folder, "--tokens", "ids.json", "--against", "missing")
    cut = folder / "cut.logits"
    cut.write_bytes(saved.read_bytes()[:-4])
    assert f"expected {saved.stat().st_size} bytes, found {saved.stat().st_size - 4}" in refusal(
        folder, "--tokens", "ids.json", *WINDOWS, "--against", cut)  # fmt: skip


def test_bad_texts_and_windows_are_refused(folder):
    (folder / "one").write_text("5")
    (folder / "word").write_text("[5, 6, seven]")
    (folder / "unnamed").write_text("5 151669")
    (folder / "empty").write_text("")
    assert "text: expected --file or --tokens, found neither" in refusal(folder, code=2)
    assert "cannot read" in refusal(folder, "--file", "missing")
    assert "one: expected at least 2 tokens, found 1" in refusal(folder, "--tokens", "one", code=2)
    assert "empty: expected at least 2 tokens, found 0" in refusal(folder, "--file", "empty", code=2)
    assert 'word: expected token ids, found "seven" after 2 of them' in refusal(folder, "--tokens", "word", code=2)
    assert "151669" in refusal(folder, "--tokens", "unnamed", code=2)
    ids = ["--tokens", "ids.json"]
    assert "--context: expected at least 2 positions, found 1" in refusal(folder, *ids, "--context", "1", code=2)
    assert "--context: expected 1 to 2048 positions" in refusal(folder, *ids, "--context", "2049", code=2)
    assert "--stride: expected 1 to 40 tokens (--context), found 41" in refusal(
        folder, *ids, "--context", "40", "--stride", "41", code=2)  # fmt: skip
    assert "--stride: expected 1 to" in refusal(folder, *ids, "--stride", "0", code=2)
    assert "--limit: expected at least 2 tokens, found 1" in refusal(folder, *ids, "--limit", "1", code=2)
    assert "ids.json/save: cannot make the directory" in refusal(folder, *ids, "--save-logits", "ids.json/save/no")


def test_ctrl_c_reports_what_was_scored_and_saves_nothing(folder):
    (folder / "long").write_text(" ".join(str(i) for i in range(8000)))
    run = subprocess.Popen([KIPP, "perplexity", "--model", folder / "tiny-tied-bf16.gguf", "--allow-synthetic", "--json",
                            "--tokens", "long", "--save-logits", "long.logits"], cwd=folder, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    partial = folder / "long.logits.partial"
    deadline = time.monotonic() + 60
    while not (partial.exists() and partial.stat().st_size > 20e6) and time.monotonic() < deadline:
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    found = json.loads(out)
    assert found["interrupted"] and 0 < found["tokens"] < 7500
    assert "no logits were saved" in err
    assert not partial.exists() and not (folder / "long.logits").exists()
