"""`kipp serve` as a process, and a client that sees the bytes: what the tests of the server stand on."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIPP = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build")) / "kipp"
PATIENCE = 120  # seconds; sanitized builds are slow
FLAGS = os.environ.get("KIPP_SERVE_FLAGS", "").split()  # of every server: all its tests with --kv tiered


class Server:
    """Started with the first free port; `stop` ends it the polite way and returns its exit code."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None, wait: bool = True) -> None:
        self.process = subprocess.Popen(
            [KIPP, "serve", *([] if "--port" in arguments else ["--port", "0"]), *FLAGS, *arguments],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.lines: list[str] = []
        self.port = 0
        self._seen = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if wait:
            self.wait_for(r"ready: http://\S+:(\d+)")

    def _read(self) -> None:
        for line in self.process.stderr:
            with self._seen:
                self.lines.append(line)
                if found := re.search(r"http://\S+?:(\d+)", line):
                    self.port = int(found[1])
                self._seen.notify_all()
        with self._seen:
            self.lines.append("")
            self._seen.notify_all()

    def wait_for(self, pattern: str, patience: float = PATIENCE) -> re.Match:
        end = time.monotonic() + patience
        with self._seen:
            while True:
                for line in self.lines:
                    if found := re.search(pattern, line):
                        return found
                left = end - time.monotonic()
                assert left > 0 and self.lines[-1:] != [""], f"never said {pattern}: {''.join(self.lines)}"
                self._seen.wait(left)

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def stop(self, how: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)

    # One request, one connection.
    def ask(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if data is not None else {}
        connection.request(method, path, body=data, headers=given | (headers or {}))
        answer = connection.getresponse()
        result = Answer(answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read())
        connection.close()
        return result

    def post(self, path: str, body: object, **headers: str) -> Answer:
        return self.ask("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})

    def ok(self, path: str, body: object) -> dict:
        answer = self.post(path, body)
        assert answer.status == 200, answer.body
        return answer.json

    def stream(self, path: str, body: dict) -> list[dict]:
        answer = self.post(path, {**body, "stream": True})
        assert answer.status == 200, answer.body
        return answer.events

    # A request whose answer is not read: (socket, everything that came with the header).
    def open_stream(self, path: str, body: dict) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        data = json.dumps(body).encode()
        client.sendall(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        return client

    def metrics(self) -> dict[str, float]:
        values = {}
        for line in self.ask("GET", "/metrics").body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def metric(self, name: str) -> float:
        return self.metrics()[name]

    def wait_until(self, condition, patience: float = PATIENCE) -> dict[str, float]:
        """Polls /metrics until condition(metrics) holds."""
        end = time.monotonic() + patience
        while True:
            metrics = self.metrics()
            if condition(metrics):
                return metrics
            assert time.monotonic() < end, metrics
            time.sleep(0.02)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def error(self) -> dict:
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"]
        return error

    @property
    def events(self) -> list[dict]:
        """The chunks of a stream that ended as it should."""
        assert self.headers["content-type"] == "text/event-stream; charset=utf-8"
        pieces = [p for p in self.body.decode().split("\n\n") if p and not p.startswith(":")]
        assert all(p.startswith("data: ") for p in pieces), pieces
        assert pieces[-1] == "data: [DONE]"
        return [json.loads(p.removeprefix("data: ")) for p in pieces[:-1]]


def joined(chunks: list[dict], chat: bool) -> dict:
    """A stream as a client adds it up: the choices of the whole answer, and the usage of the last chunk."""
    choices: dict[int, dict] = {}
    usage = None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for part in chunk["choices"]:
            choice = choices.setdefault(
                part["index"],
                {"content": "", "reasoning": "", "tools": {}, "logprobs": [], "finish": None, "role": None},
            )
            assert choice["finish"] is None, "a piece after the end"
            choice["finish"] = part["finish_reason"]
            if part.get("logprobs"):
                choice["logprobs"].append(part["logprobs"])
            if not chat:
                choice["content"] += part["text"]
                continue
            delta = part["delta"]
            choice["role"] = delta.get("role") or choice["role"]
            choice["content"] += delta.get("content") or ""
            choice["reasoning"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or []:
                known = choice["tools"].setdefault(call["index"], {"id": None, "name": None, "arguments": ""})
                known["id"] = call.get("id") or known["id"]
                known["name"] = call["function"].get("name") or known["name"]
                known["arguments"] += call["function"].get("arguments") or ""
    for choice in choices.values():
        parts = choice["logprobs"]
        if chat:
            choice["logprobs"] = [entry for part in parts for entry in part["content"]]
        else:
            keys = parts[0] if parts else ()
            choice["logprobs"] = {key: [x for part in parts for x in part[key]] for key in keys}
    return {"choices": [choices[i] for i in sorted(choices)], "usage": usage}


def taken_apart(whole: dict, chat: bool) -> dict:
    """The whole answer in the same shape."""
    choices = []
    for choice in whole["choices"]:
        logprobs = choice.get("logprobs") or {}
        message = choice["message"] if chat else {}
        choices.append(
            {
                "content": (message.get("content") or "") if chat else choice["text"],
                "reasoning": message.get("reasoning_content") or "",
                "tools": {
                    i: {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
                    for i, call in enumerate(message.get("tool_calls") or [])
                },
                "logprobs": logprobs.get("content", []) if chat else logprobs,
                "finish": choice["finish_reason"],
                "role": message.get("role"),
            }
        )
    return {"choices": choices, "usage": whole["usage"]}
