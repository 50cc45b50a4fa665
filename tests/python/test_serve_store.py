"""`kipp serve --session-dir`: what was computed of prompts survives the server, and changes no bit of an answer."""

import pathlib
import signal
import subprocess

import pytest

from serving import KIPP, Server

PROMPT = [(i * 7919) % 150_000 for i in range(300)]
LONGER = PROMPT + [(i * 104_729) % 150_000 for i in range(40)]
BLOCK = 32


def body(prompt, **more):
    return {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": 5, **more}


def answer(server, prompt, **more):
    """Everything that the model has to say about it, and how much of the prompt was not evaluated."""
    whole = server.ok("/v1/completions", body(prompt, **more))
    [choice] = whole["choices"]
    return (choice["text"], choice["logprobs"]), whole["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def cold():
    with Server() as server:
        answers = {len(prompt): answer(server, prompt)[0] for prompt in (LONGER, PROMPT)}
        assert not [name for name in server.metrics() if "session_store" in name]
        return answers


def stored(directory: pathlib.Path) -> list[pathlib.Path]:
    return sorted(directory.glob("*.kvblock"))


def test_a_restart_loses_nothing_and_changes_no_bit(cold, tmp_path):
    store = ["--session-dir", str(tmp_path / "store")]
    with Server(*store) as server:
        assert answer(server, PROMPT) == (cold[len(PROMPT)], 0)
        assert server.stop() == 0, server.log
    with Server(*store) as server:
        assert answer(server, LONGER) == (cold[len(LONGER)], len(PROMPT) // BLOCK * BLOCK)
        metrics = server.metrics()
        assert metrics["kipp_session_store_restored_total"] == len(PROMPT) // BLOCK
        assert metrics["kipp_session_store_refused_total"] == 0
        assert metrics["kipp_session_store_bytes"] == sum(path.stat().st_size for path in stored(tmp_path / "store"))
        assert server.stop() == 0, server.log
    # Another backend computes other bits: it finds nothing, and leaves what is there alone.
    kept = stored(tmp_path / "store")
    with Server(*store, "--backend", "reference") as server:
        assert answer(server, PROMPT[:70])[1] == 0
        server.wait_for("files of other models or programs are left alone")
    assert set(kept) <= set(stored(tmp_path / "store"))
    shown = subprocess.run([KIPP, "inspect", kept[-1]], capture_output=True, text=True, check=True).stdout
    assert "blocks        1 of 32 positions" in shown


def test_bit_planes_come_back_as_they_were(tmp_path):
    prompt = [(i * 7919) % 150_000 for i in range(760)]  # beyond the far edge of every band
    longer = prompt + PROMPT[:40]
    tiered = ["--kv", "tiered"]
    with Server(*tiered) as server:
        cold = answer(server, longer)[0]
    with Server(*tiered, "--session-dir", str(tmp_path)) as server:
        answer(server, prompt)
        assert server.stop() == 0, server.log
    with Server(*tiered, "--session-dir", str(tmp_path)) as server:
        assert answer(server, longer) == (cold, len(prompt) // BLOCK * BLOCK)
        assert server.metrics()["kipp_session_store_restored_total"] == len(prompt) // BLOCK
        assert server.stop() == 0, server.log
    # Another policy's answer is another one, and so are its blocks.
    with Server("--kv", "int8", "--session-dir", str(tmp_path)) as server:
        assert answer(server, prompt)[1] == 0


def test_what_an_idle_server_wrote_survives_its_violent_end(cold, tmp_path):
    store = ["--session-dir", str(tmp_path)]
    with Server(*store) as server:
        answer(server, PROMPT)
        server.wait_until(lambda m: m["kipp_session_store_saved_total"] >= len(PROMPT) // BLOCK)
        server.stop(signal.SIGKILL)
    with Server(*store) as server:
        assert answer(server, LONGER) == (cold[len(LONGER)], len(PROMPT) // BLOCK * BLOCK)


def test_damage_is_a_shorter_hit(cold, tmp_path):
    store = ["--session-dir", str(tmp_path)]
    with Server(*store) as server:
        answer(server, PROMPT)
        server.stop()
    for path in stored(tmp_path):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    with Server(*store) as server:
        assert answer(server, LONGER) == (cold[len(LONGER)], 0)
        server.wait_for("session store: not used: .*the session is damaged")
        assert server.metrics()["kipp_session_store_refused_total"] >= 1
        assert server.stop() == 0


def test_a_budget_holds_and_salts_keep_users_apart(cold, tmp_path):
    with Server("--session-dir", str(tmp_path)) as server:
        answer(server, PROMPT, cache_salt="mine")
        server.stop()
    block = stored(tmp_path)[0].stat().st_size
    with Server("--session-dir", str(tmp_path), "--session-budget", str(4 * block + 4096)) as server:
        assert len(stored(tmp_path)) == 4
        # Mine first: what is stored of yours takes its place.
        assert answer(server, PROMPT[:100], cache_salt="mine")[1] == 96
        assert answer(server, PROMPT, cache_salt="yours") == (cold[len(PROMPT)], 0)
        server.stop()
        assert sum(path.stat().st_size for path in stored(tmp_path)) <= 4 * block + 4096


def test_a_directory_that_cannot_be_used_is_a_sentence(tmp_path):
    def refused(*arguments):
        done = subprocess.run([KIPP, "serve", "--port", "0", *arguments], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stderr

    (tmp_path / "file").write_text("no directory")
    code, sentence = refused("--session-dir", str(tmp_path / "file"))
    assert code == 1 and "cannot make the directory" in sentence or "cannot create" in sentence
    code, sentence = refused("--session-dir", str(tmp_path / "new"), "--session-budget", "1KiB")
    assert code == 2 and "--session-budget: expected at least the" in sentence
    with Server("--session-dir", str(tmp_path / "store")):
        code, sentence = refused("--session-dir", str(tmp_path / "store"))
        assert code == 2 and "expected a directory that no other server uses, found it in use" in sentence
