"""`--kv` on the command line: the same text however it is computed, and sentences for what cannot be had."""

import json
import os
import pathlib
import subprocess

import pytest

from serving import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIPP = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build")) / "kipp"
PROMPT = "Once upon a time there was a lighthouse keeper. " * 30  # past the bands that are near


def kipp(*arguments):
    return subprocess.run([KIPP, *arguments], capture_output=True, text=True, timeout=300)


def story(*arguments):
    done = kipp("run", "--json", "--prompt", PROMPT, "--max-tokens", "48", "--temperature", "0", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("policy", ["int8", "tiered", "tiered-max"])
def test_a_policy_gives_one_answer(policy):
    plain = story("--kv", policy)
    for flags in [("--threads", "1"), ("--threads", "3"), ("--weights", "mapped"), ("--speculate", "ngram")]:
        found = story("--kv", policy, *flags)
        assert (found["text"], found["logits_hash"]) == (plain["text"], plain["logits_hash"]), flags


def test_policies_are_told_apart():
    hashes = {policy: story("--kv", policy)["logits_hash"] for policy in ["bf16", "int8", "tiered", "tiered-max"]}
    assert len(set(hashes.values())) == 4, hashes


@pytest.mark.parametrize("arguments, code, sentence", [
    (["--kv", "int4"], 2, 'kv: expected bf16, int8, tiered, tiered-max, or a policy as in'),
    (["--kv", "far=int4"], 1, "kv: expected bf16, int8, tiered, tiered-max, what is proven for kipp-demo, found far=int4, which --kv-unproven accepts"),
    (["--kv", "far=int4,up=99", "--kv-unproven"], 2, "found 99"),
])
def test_what_cannot_be_had_is_refused(arguments, code, sentence):
    done = kipp("run", "--prompt", "Once", "--max-tokens", "1", *arguments)
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_policy_in_words_is_taken_when_it_is_asked_for():
    done = kipp("run", "--prompt", "Once", "--max-tokens", "4", "--kv", "recent=2:int8,far=int4/int2,exempt=0+-1", "--kv-unproven")
    assert done.returncode == 0, done.stderr


def test_a_server_says_how_its_memory_is_used():
    with Server("--kv", "tiered", "--context", "1024") as server:
        server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 8, "temperature": 0})
        metrics = server.wait_until(lambda m: m["kipp_requests_running"] == 0)
        assert metrics['kipp_kv_bytes{state="used"}'] == 0 < metrics['kipp_kv_bytes{state="cached"}']
        assert metrics['kipp_kv_plane_blocks{side="key",plane="hi2",layers="common"}'] >= 8
        assert server.stop() == 0
