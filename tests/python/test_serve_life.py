"""The life of requests in `kipp serve`: clients that vanish, queues that fill, streams beside long prompts, and how the
process begins and ends."""

import json
import signal
import socket
import threading
import time

import pytest

from serving import Server

LONG = {"prompt": "Once upon a time", "max_tokens": 7000, "ignore_eos": True, "temperature": 1}
SHORT = {"prompt": "The sea", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def server():
    with Server("--max-sequences", "2", "--max-queue", "4", "--request-timeout", "3") as running:
        yield running
        assert running.ok("/v1/completions", SHORT)["usage"]["completion_tokens"] == 4
        assert running.stop() == 0, running.log


def idle(metrics):
    return metrics["kipp_requests_running"] == 0 and metrics["kipp_requests_waiting"] == 0


def held(metrics):
    return metrics['kipp_kv_blocks{state="used"}'] + metrics['kipp_kv_blocks{state="shared"}']


@pytest.mark.parametrize("stream", [True, False])
def test_who_vanishes_while_tokens_come_costs_nothing_more(server, stream):
    """B092, B095"""
    before = server.metrics()
    client = server.open_stream("/v1/completions", {**LONG, "stream": stream})
    server.wait_until(lambda m: m["kipp_generated_tokens_total"] >= before["kipp_generated_tokens_total"] + 3)
    client.close()
    after = server.wait_until(idle)
    assert held(after) == 0
    assert after["kipp_cancelled_requests_total"] == before["kipp_cancelled_requests_total"] + 1
    drawn = after["kipp_generated_tokens_total"] - before["kipp_generated_tokens_total"]
    assert after["kipp_cancelled_tokens_total"] - before["kipp_cancelled_tokens_total"] >= drawn
    assert drawn < 7000
    server.wait_for("status=499")


def test_who_vanishes_while_the_prompt_is_read(server):
    before = server.metrics()
    prompt = [(i * 7919) % 150_000 for i in range(8000)]
    client = server.open_stream("/v1/completions", {**SHORT, "prompt": prompt, "stream": True})
    server.wait_until(lambda m: m["kipp_prompt_tokens_total"] > before["kipp_prompt_tokens_total"])
    client.close()
    after = server.wait_until(idle)
    assert held(after) == 0
    assert after["kipp_cancelled_tokens_total"] > before["kipp_cancelled_tokens_total"]


def test_who_vanishes_from_the_queue_is_never_begun(server):
    """B094"""
    busy = [server.open_stream("/v1/completions", {**LONG, "stream": True}) for _ in range(2)]
    server.wait_until(lambda m: m["kipp_requests_running"] == 2)
    before = server.metrics()
    queued = [server.open_stream("/v1/completions", {**LONG, "prompt": f"Wait {i}"}) for i in range(3)]
    server.wait_until(lambda m: m["kipp_requests_waiting"] == 3)
    for client in queued:
        client.close()
    after = server.wait_until(lambda m: m["kipp_requests_waiting"] == 0)
    assert after["kipp_prompt_tokens_total"] == before["kipp_prompt_tokens_total"]
    for client in busy:
        client.close()
    server.wait_until(idle)


def test_a_full_queue_says_when_to_come_back(server):
    busy = [server.open_stream("/v1/completions", {**LONG, "stream": True}) for _ in range(6)]
    server.wait_until(lambda m: m["kipp_requests_running"] == 2 and m["kipp_requests_waiting"] == 4)
    refused = server.post("/v1/completions", SHORT)
    assert refused.status == 429 and int(refused.headers["retry-after"]) >= 1
    assert refused.error["type"] == "rate_limit_error"
    for client in busy:
        client.close()
    server.wait_until(idle)
    assert server.post("/v1/completions", SHORT).status == 200


def test_a_reader_that_does_not_read_holds_up_nobody(server):
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", server.port))
    body = json.dumps({**LONG, "stream": True, "logprobs": 5}).encode()
    slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    server.wait_until(lambda m: m["kipp_requests_running"] >= 1)
    for _ in range(3):
        assert server.ok("/v1/completions", SHORT)["usage"]["completion_tokens"] == 4
    server.wait_until(lambda m: m["kipp_http_dropped_slow_total"] >= 1 or idle(m))
    slow.close()
    server.wait_until(idle)


def test_the_pool_is_whole_after_all_that(server):
    metrics = server.wait_until(idle)
    assert held(metrics) == 0 and metrics["kipp_kv_blocks_reserved"] == 0
    states = sum(value for name, value in metrics.items() if name.startswith("kipp_kv_blocks{"))
    assert states == metrics["kipp_kv_blocks_capacity"]


def test_answers_under_way_end_before_the_process_does():
    with Server() as server:
        answers = []
        body = {**LONG, "max_tokens": 200}
        thread = threading.Thread(target=lambda: answers.append(server.post("/v1/completions", {**body, "stream": True})))
        thread.start()
        server.wait_until(lambda m: m["kipp_generated_tokens_total"] > 5)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("draining: 1 calls under way")
        thread.join()
        assert answers[0].events[-1]["choices"][0]["finish_reason"] == "length"
        assert server.stop() == 0


def test_a_drain_has_an_end():
    with Server("--drain-timeout", "0.2") as server:
        client = server.open_stream("/v1/completions", {**LONG, "stream": True})
        server.wait_until(lambda m: m["kipp_requests_running"] == 1)
        start = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - start < 30
        client.close()


def test_killed_and_started_again():
    with Server() as server:
        client = server.open_stream("/v1/completions", {**LONG, "stream": True})
        server.wait_until(lambda m: m["kipp_generated_tokens_total"] > 3)
        port = server.port
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        client.close()
    with Server("--port", str(port)) as again:
        assert again.ok("/v1/completions", SHORT)["usage"]["completion_tokens"] == 4


def test_a_port_that_is_taken():
    with Server() as server:
        second = Server("--port", str(server.port), wait=False)
        assert second.stop(0) == 1
        assert str(server.port) in second.log and "in use" in second.log


def test_an_answer_that_takes_too_long():
    with Server("--generation-timeout", "0.3") as server:
        late = server.post("/v1/completions", LONG)
        assert late.status == 504 and late.error["code"] == "timeout"
        chunks = server.post("/v1/completions", {**LONG, "stream": True}).body.decode()
        assert '"timeout"' in chunks and chunks.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "70000"], "--port"),
        (["--kv-memory", "1KiB"], "--kv-memory"),
        (["--kv-memory", "lots"], "--kv-memory"),
        (["--context", "0"], "--context"),
        (["--context", "9000000"], "--context"),
        (["--max-sequences", "0"], "--max-sequences"),
        (["--api-key", "two words"], "--api-key"),
        (["--cors-origin", "example.org"], "--cors-origin"),
        (["--metrics-compat", "sglang"], "--metrics-compat"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--model", "qwen4-7b"], "qwen4-7b"),
    ],
)
def test_flags_that_make_no_sense(arguments, words):
    server = Server(*arguments, wait=False)
    assert server.stop(0) in (1, 2)
    assert server.log.startswith("kipp serve: ") or "kipp serve: " in server.log
    assert words in server.log
