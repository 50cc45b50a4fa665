"""What `kipp serve` refuses, and that a good request beside it is answered all the same. Cases with a number are public
reports about other servers."""

import json
import socket

import pytest

from serving import Server

GOOD = {"prompt": "Once upon a time", "max_tokens": 2, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "temperature": 0}


@pytest.fixture(scope="module")
def server():
    with Server("--max-body", "1MiB", "--request-timeout", "3", "--context", "1024") as running:
        yield running
        assert running.ok("/v1/completions", GOOD)["usage"]["completion_tokens"] == 2
        assert running.stop() == 0, running.log


def message(**fields):
    return {"messages": [{"role": "user", "content": "Hello", **fields}], "max_tokens": 2}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {**GOOD, "frobnicate": 1}, "frobnicate"),
        ("/v1/completions", {**GOOD, "model": "gpt-4"}, "model"),
        ("/v1/completions", {**GOOD, "n": 9}, "n"),
        ("/v1/completions", {**GOOD, "n": 0}, "n"),
        ("/v1/completions", {**GOOD, "max_tokens": -1}, "max_tokens"),  # B041
        ("/v1/completions", {**GOOD, "max_tokens": 1.5}, "max_tokens"),
        ("/v1/completions", {**GOOD, "temperature": -0.1}, "temperature"),
        ("/v1/completions", {**GOOD, "temperature": "hot"}, "temperature"),
        ("/v1/completions", {**GOOD, "logit_bias": {"191222": -100}}, "logit_bias"),  # B037
        ("/v1/completions", {**GOOD, "logit_bias": {"AI": -100}}, "logit_bias"),
        ("/v1/completions", {**GOOD, "logit_bias": {"-1": 5}}, "logit_bias"),
        ("/v1/completions", {**GOOD, "logit_bias": {"5": 1e9}}, "logit_bias"),
        ("/v1/completions", {**GOOD, "prompt": [1, -1]}, "prompt"),  # B039
        ("/v1/completions", {**GOOD, "prompt": [151936]}, "prompt"),
        ("/v1/completions", {**GOOD, "prompt": [[1], []]}, "prompt"),
        ("/v1/completions", {**GOOD, "prompt": ""}, "prompt"),
        ("/v1/completions", {"max_tokens": 1}, "prompt"),
        ("/v1/completions", {**GOOD, "stop": [""]}, "stop"),  # B061
        ("/v1/completions", {**GOOD, "stop": list("abcde")}, "stop"),
        ("/v1/completions", {**GOOD, "logprobs": 6}, "logprobs"),
        ("/v1/completions", {**GOOD, "stream_options": {"include_usage": True}}, "stream_options"),
        ("/v1/completions", {**GOOD, "stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ("/v1/completions", {**GOOD, "best_of": 3}, "best_of"),
        ("/v1/completions", {**GOOD, "suffix": "end"}, "suffix"),
        ("/v1/chat/completions", message(role="wizard"), "messages[0].role"),  # B107
        ("/v1/chat/completions", message(content=[{"type": "image_url"}]), "messages[0].content"),  # B017
        ("/v1/chat/completions", {**CHAT, "messages": []}, "messages"),
        ("/v1/chat/completions", {**CHAT, "response_format": {"type": "json_object"}}, "response_format"),
        ("/v1/chat/completions", {**CHAT, "tool_choice": "required"}, "tool_choice"),
        ("/v1/chat/completions", {**CHAT, "top_logprobs": 3}, "top_logprobs"),
        ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("/v1/chat/completions", {**CHAT, "chat_template_kwargs": {"x": 1}}, "chat_template_kwargs"),
        ("/v1/chat/completions", {**CHAT, "functions": []}, "functions"),
        ("/tokenize", {"content": "x", "text": "x"}, "text"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
    ],
)
def test_names_the_field(server, path, body, param):
    answer = server.post(path, body)
    assert answer.status in (400, 404), answer.body
    error = answer.error
    assert (error["param"] or "").startswith(param), error
    assert error["type"] == "invalid_request_error"
    assert param.split("[")[0].split(".")[0] in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{:",
        b'{"prompt": "a"} x',
        b'{"prompt": "a", "prompt": "b"}',  # B103
        b'{"prompt": "a", "temperature": NaN}',  # B034
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "a", "temperature": Infinity}',
        b'{"prompt": "\\ud83d"}',  # B064
        b'{"prompt": "\\ude00 x"}',
        b'{"prompt": "\xff"}',
        b'{"x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",  # B099
        b'{"messages": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",  # B100
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/apply-template"])
def test_what_is_no_json_object_is_refused(server, path, body):
    answer = server.ask("POST", path, body)
    assert answer.status == 400 and answer.error["type"] == "invalid_request_error"


def test_a_long_body_of_one_letter_is_answered(server):
    """B101"""
    answer = server.post("/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": "a" * 50_000}]})
    assert answer.status in (200, 400)
    assert answer.status == 200 or answer.error["code"] == "context_length_exceeded"


def test_a_prompt_that_does_not_fit_has_a_code_and_both_counts(server):
    """B111"""
    context = server.ask("GET", "/v1/models").json["data"][0]["max_model_len"]
    answer = server.post("/v1/completions", {**GOOD, "prompt": [1] * (context + 1)})
    assert answer.status == 400 and answer.error["code"] == "context_length_exceeded"
    assert str(context) in answer.error["message"] and str(context + 1) in answer.error["message"]
    fits = server.ok("/v1/completions", {**GOOD, "prompt": [1] * (context - 4), "max_tokens": 1000, "ignore_eos": True})
    assert fits["choices"][0]["finish_reason"] == "length"  # B109
    assert fits["usage"]["completion_tokens"] <= 5


def test_a_body_beyond_the_limit(server):
    assert server.ask("POST", "/v1/completions", b" " * (1 << 21)).status == 413


def test_paths_methods_and_types(server):
    assert server.ask("GET", "/v1/engines").status == 404
    wrong = server.ask("GET", "/v1/completions")
    assert wrong.status == 405 and wrong.headers["allow"] == "POST"
    form = server.ask("POST", "/v1/completions", b"{}", {"Content-Type": "application/x-www-form-urlencoded"})
    assert form.status == 415


def test_another_name_is_not_answered_on_loopback(server):
    assert server.ask("GET", "/v1/models", headers={"Host": "evil.example"}).status == 403
    assert server.ask("GET", "/v1/models", headers={"Host": "localhost:1"}).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(server, raw):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(raw)
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    assert answer == b"" or answer.split(b" ")[1].startswith(b"4"), answer[:200]


def test_who_is_slow_to_ask_is_sent_away(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    assert b" 408 " in answer.split(b"\r\n")[0] or answer == b""


def test_null_counts_as_absent(server):
    """B125: what benchmark clients send."""
    fields = ["stop", "seed", "n", "logprobs", "logit_bias", "stream", "stream_options", "top_p", "user", "echo", "suffix"]
    body = {**GOOD, **{field: None for field in fields}, "ignore_eos": True, "min_tokens": 2}
    assert server.ok("/v1/completions", body)["usage"]["completion_tokens"] == 2
    chat = {**CHAT, "tools": None, "tool_choice": None, "response_format": None, "max_tokens": None, "max_completion_tokens": 2}
    assert server.ok("/v1/chat/completions", chat)["usage"]["completion_tokens"] <= 2


def test_temperatures_at_the_edges(server):
    """B034, B036"""
    greedy = server.ok("/v1/completions", {**GOOD, "max_tokens": 8})["choices"][0]["text"]
    for temperature in (-0.0, 1e-12, 1e-38):
        assert server.ok("/v1/completions", {**GOOD, "max_tokens": 8, "temperature": temperature})["choices"][0]["text"] == greedy


def test_a_banned_vocabulary_gives_finite_numbers(server):
    """B071"""
    body = {**GOOD, "logprobs": 5, "logit_bias": {str(i): -100 for i in range(500)}}
    text = server.post("/v1/completions", body).body.decode()
    assert "Infinity" not in text and "NaN" not in text and json.loads(text)


def test_keys():
    with Server(env={"KIPP_API_KEY": "secret"}) as guarded:
        assert guarded.ask("GET", "/health").status == 200
        refused = guarded.post("/v1/completions", GOOD)
        assert refused.status == 401 and refused.error["code"] == "missing_api_key"
        assert guarded.post("/v1/completions", GOOD, Authorization="Bearer wrong").error["code"] == "invalid_api_key"
        assert guarded.post("/v1/completions", GOOD, Authorization="Bearer secret").status == 200
        assert guarded.ask("GET", "/metrics").status == 401


def test_pages_of_other_origins():
    """B105: a preflight carries no key."""
    with Server("--api-key", "k", "--cors-origin", "https://app.example") as guarded:
        ask = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
        preflight = guarded.ask("OPTIONS", "/v1/chat/completions", headers=ask)
        assert preflight.status == 204 and preflight.headers["access-control-allow-origin"] == "https://app.example"
        stranger = guarded.ask("OPTIONS", "/v1/chat/completions", headers={**ask, "Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in stranger.headers
        assert guarded.post("/v1/completions", GOOD, Origin="https://app.example").status == 401
