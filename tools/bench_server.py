#!/usr/bin/env python3
"""How fast `kipp serve` serves, beside llama-server on the same file: prints the tables of docs/SERVER.md.

    python3 tools/bench_server.py --model qwen3-0.6b-q8_0.gguf --llama-server ~/llama.cpp/build/bin/llama-server

Closed loop: so many clients, each with one request at a time, all streamed, every prompt different. The servers run in
turns, level by level and round by round, on as many threads. Run it on an idle machine: llama.cpp's threads spin, and
the load generator itself needs some of the cores, for both servers alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

from load_client import Process, kipp_server, llama_server, stream

RUNNING = 32  # sequences that `kipp serve` evaluates at once where nobody says otherwise
WORDS = "the sea boat fox hill wind rain stone river night lamp bread song road tree bell snow king cup door".split()


def prompt(words: int, seed: int) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


def percentile(values: list[float], share: float) -> float:
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


async def closed_loop(server: Process, clients: int, seconds: float, tokens: int, words: int, seed: int) -> dict:
    end = time.perf_counter() + seconds
    gaps: list[float] = []
    firsts: list[float] = []
    drawn = 0
    failed = 0

    async def client(number: int) -> None:
        nonlocal drawn, failed
        turn = 0
        while time.perf_counter() < end:
            turn += 1
            body = {
                "prompt": prompt(words, seed * 1_000_003 + number * 1009 + turn),
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream_options": {"include_usage": True},
            }
            result = await stream(server.port, body)
            if result.status != 200 or result.error or not result.times:
                failed += 1
                continue
            firsts.append(result.first)
            gaps.extend(b - a for a, b in zip(result.times, result.times[1:], strict=False))
            drawn += (result.last or {}).get("usage", {}).get("completion_tokens", len(result.times))

    begin = time.perf_counter()
    await asyncio.gather(*(client(i) for i in range(clients)))
    took = time.perf_counter() - begin
    return {
        "clients": clients,
        "tokens_per_second": drawn / took,
        "first_token_p50": statistics.median(firsts),
        "inter_token_p50": statistics.median(gaps),
        "inter_token_p99": percentile(gaps, 0.99),
        "failed": failed,
    }


async def first_token_overhead(server: Process, n: int) -> dict:
    """Client's time to the first token less the engine's own time for the prompt and its first step."""
    extra = []
    for i in range(n):
        result = await stream(server.port, {"prompt": prompt(6, i), "max_tokens": 1, "temperature": 0, "ignore_eos": True})
        extra.append(result.first - result.last["timings"]["prompt_ms"] / 1000)
    return {"requests": n, "overhead_p50": statistics.median(extra), "overhead_p90": percentile(extra, 0.9)}


async def repeated_prompt(server: Process, words: int) -> dict:
    body = {"prompt": prompt(words, 77), "max_tokens": 2, "temperature": 0, "stream_options": {"include_usage": True}}
    first = await stream(server.port, body)
    again = [await stream(server.port, body) for _ in range(5)]
    return {
        "prompt_tokens": first.last["usage"]["prompt_tokens"],
        "first": first.first,
        "second": statistics.median(result.first for result in again),
    }


async def many_streams(server: Process, streams: int, tokens: int) -> dict:
    """So many open at once, of which as many decode as the server takes: what the others cost while they wait. Wants a
    server whose cache is small, so that a first wave has touched all of it."""
    body = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}

    async def wave(n: int, first: int) -> tuple[int, int]:
        most = 0
        done = False

        async def watch() -> None:
            nonlocal most
            while not done:
                most = max(most, server.rss())
                await asyncio.sleep(0.05)

        watcher = asyncio.create_task(watch())
        asked = (stream(server.port, {**body, "prompt": prompt(8, first + i)}) for i in range(n))
        results = await asyncio.gather(*asked)
        done = True
        await watcher
        return most, sum((r.last or {}).get("usage", {}).get("completion_tokens") == tokens for r in results)

    for i in range(3):
        few, _ = await wave(RUNNING, 1000 * i)
    many, served = await wave(streams, 5000)
    return {"streams": streams, "served": served, "bytes_per_waiting_stream": (many - few) / (streams - RUNNING)}


async def io_thread(server: Process, clients: int, seconds: float) -> dict:
    tokens = server.metrics()["kipp_generated_tokens_total"]
    used = server.thread_seconds("kipp-io")
    await closed_loop(server, clients, seconds, 256, 8, 99)
    used = server.thread_seconds("kipp-io") - used
    return {"microseconds_per_token": used / (server.metrics()["kipp_generated_tokens_total"] - tokens) * 1e6}


async def pace_beside_a_long_prompt(server: Process, words: int) -> dict:
    """Gaps between the tokens of one stream while somebody's long prompt is read, and between the same tokens when it is
    alone: what a stream has generated slows it too."""
    body = {"prompt": prompt(8, 1), "max_tokens": 7000, "temperature": 0, "ignore_eos": True}
    times: list[float] = []
    running = asyncio.create_task(stream(server.port, body, times=times))
    while len(times) < 10:
        await asyncio.sleep(0.05)
    begin = len(times)
    long = await stream(server.port, {"prompt": prompt(words, 5), "max_tokens": 1, "temperature": 0})
    end = len(times)
    running.cancel()
    again = await stream(server.port, body, leave_after=end)
    beside, alone = ([b - a for a, b in zip(t[begin:end], t[begin + 1 : end], strict=False)] for t in (times, again.times))
    return {
        "tokens": end - begin,
        "alone_p50": statistics.median(alone),
        "beside_p50": statistics.median(beside),
        "alone_p99": percentile(alone, 0.99),
        "beside_p99": percentile(beside, 0.99),
        "long_prompt": long.first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kipp", default="build/kipp")
    parser.add_argument("--model", default="", help="a model file; default: the demo checkpoint, for kipp alone")
    parser.add_argument("--llama-server", help="measured in turn with kipp, on the same file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cores", default="", help="pin the servers to these (0,1); the load then comes from others")
    parser.add_argument("--clients", default="4,16,32")
    parser.add_argument("--rounds", type=int, default=2, help="of the comparison; 0: none")
    parser.add_argument("--seconds", type=float, default=15, help="of one measurement")
    parser.add_argument("--tokens", type=int, default=64, help="of one answer")
    parser.add_argument("--words", type=int, default=60, help="of one prompt")
    parser.add_argument("--long", type=int, default=6000, help="words of the long prompt")
    parser.add_argument("--studies", default="first_token,io_thread,many_streams,repeated_prompt,pace", help="of kipp alone")
    parser.add_argument("--out", help="write this JSON file")
    args = parser.parse_args()
    levels = [int(level) for level in args.clients.split(",")]
    result: dict = {"model": pathlib.Path(args.model).name or "kipp-demo", "threads": args.threads, "load": [], "kipp": {}}
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder)

        def kipp(*more: str) -> Process:
            return kipp_server(args.kipp, args.model, args.threads, log / "kipp.log", *more, cores=args.cores)

        def llama() -> Process:
            return llama_server(
                args.llama_server, args.model, args.threads, max(levels), 1024, log / "llama.log", args.cores
            )

        for round_number in range(args.rounds):
            for level in levels:
                order = [("kipp", kipp)] + ([("llama.cpp", llama)] if args.llama_server else [])
                for name, start in order if round_number % 2 == 0 else reversed(order):
                    with start() as server:
                        got = asyncio.run(
                            closed_loop(server, level, args.seconds, args.tokens, args.words, round_number + 1)
                        )
                    result["load"].append({"server": name, "round": round_number + 1, **got})
                    print(json.dumps(result["load"][-1]), file=sys.stderr)
        studies = {
            "first_token": lambda server: first_token_overhead(server, 200),
            "io_thread": lambda server: io_thread(server, RUNNING, args.seconds),
            "many_streams": lambda server: many_streams(server, 200, 32),
            "repeated_prompt": lambda server: repeated_prompt(server, args.long),
            "pace": lambda server: pace_beside_a_long_prompt(server, args.long),
        }
        for name in args.studies.split(",") if args.studies else []:
            with kipp(*(["--kv-memory", "300MiB"] if name == "many_streams" else [])) as server:
                result["kipp"][name] = asyncio.run(studies[name](server))
            print(json.dumps({name: result["kipp"][name]}), file=sys.stderr)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    if result["load"]:
        print(table(result["load"], levels))


def table(load: list[dict], levels: list[int]) -> str:
    rows = [
        "| clients | server | tokens/s | first token, median | between tokens, median | between tokens, p99 |",
        "| ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for level in levels:
        for name in dict.fromkeys(entry["server"] for entry in load):
            mine = [entry for entry in load if entry["server"] == name and entry["clients"] == level]

            def middle(key: str, mine: list[dict] = mine) -> float:
                return statistics.median(entry[key] for entry in mine)

            rows.append(
                f"| {level} | {name} | {middle('tokens_per_second'):.0f} | {middle('first_token_p50') * 1e3:.0f} ms "
                f"| {middle('inter_token_p50') * 1e3:.1f} ms | {middle('inter_token_p99') * 1e3:.1f} ms |"
            )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
