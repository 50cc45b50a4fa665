"""A client that keeps time: one streamed completion over a plain socket, with the moment of every piece. What
bench_server.py and soak.py send their load with; works with any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pathlib
import re
import socket
import subprocess
import time
import urllib.request


@dataclasses.dataclass
class Stream:
    status: int
    sent: float  # seconds, as time.perf_counter() counts
    times: list[float]  # of every piece with text
    last: dict | None  # the last chunk that had usage or timings
    error: str = ""

    @property
    def first(self) -> float:
        return self.times[0] - self.sent


def request_bytes(path: str, body: dict) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data


async def stream(
    port: int, body: dict, path: str = "/v1/completions", leave_after: int | None = None, times: list[float] | None = None
) -> Stream:
    """Sends it and reads the stream to its end, or closes after so many pieces. `times`: filled as pieces come."""
    data = request_bytes(path, {**body, "stream": True})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    result = Stream(0, time.perf_counter(), [] if times is None else times, None)
    try:
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        result.status = int(head.split(b" ", 2)[1])
        if result.status != 200:
            result.error = (await reader.read()).decode(errors="replace")
            return result
        while line := await reader.readline():
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            chunk = json.loads(line[6:])
            if "error" in chunk:
                result.error = line.decode()
            if chunk.get("usage") or chunk.get("timings"):
                result.last = {**(result.last or {}), **{k: chunk[k] for k in ("usage", "timings") if chunk.get(k)}}
            if any(c.get("text") or c.get("delta", {}).get("content") for c in chunk.get("choices", [])):
                result.times.append(now)
                if leave_after is not None and len(result.times) >= leave_after:
                    return result
        return result
    finally:
        writer.close()


class Process:
    """A server under test, ready to answer."""

    def __init__(self, command: list[str], log: pathlib.Path, port: int = 0, patience: float = 300) -> None:
        """`port`: where it will listen; 0: it says so itself."""
        self.name = pathlib.Path(command[0]).name
        self.port = port
        with log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        end = time.monotonic() + patience
        while not (self.port and self._healthy()):
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise SystemExit(f"{self.name} is not ready: {log.read_text()[-2000:]}")
            if not self.port and (found := re.search(r"ready: http://\S+:(\d+)", log.read_text())):
                self.port = int(found[1])
            time.sleep(0.05)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def rss(self) -> int:
        """Bytes of memory that belong to the process alone."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024

    def thread_seconds(self, name: str) -> float:
        """CPU time of the threads of that name."""
        total = 0.0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == name:
                total += int((task / "schedstat").read_text().split()[0]) / 1e9
        return total

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")}

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()


def pinned(cores: str) -> list[str]:
    """What goes before a command that is to run on these cores ("0,1"); "" is anywhere."""
    return ["taskset", "-c", cores] if cores else []


def kipp_server(kipp: str, model: str, threads: int, log: pathlib.Path, *more: str, cores: str = "") -> Process:
    command = pinned(cores) + [kipp, "serve", "--port", "0", "--threads", str(threads), "--access-log", "off", *more]
    return Process(command + (["--model", model, "--allow-synthetic"] if model else []), log)


def llama_server(
    server: str, model: str, threads: int, sequences: int, context: int, log: pathlib.Path, cores: str = ""
) -> Process:
    """With as many slots as sequences, each of `context` positions, and a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = pinned(cores) + [server, "-m", model, "--port", str(port), "-t", str(threads), "-tb", str(threads)]
    command += ["-np", str(sequences), "-c", str(sequences * context)]
    return Process(command, log, port)
