#!/usr/bin/env python3
"""Hours of a server's life in minutes: mixed traffic with clients that vanish and bytes that make no sense, and at the
end a pool that is whole (the server's own check of it decides its exit code), memory that has not grown and not one
good request that failed.

    python3 tools/soak.py --minutes 30

Of a hundred requests five are abandoned and five are garbage, as often as not in the middle. Prints a line a minute;
exit code 1 when something was not as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import pathlib
import random
import sys
import tempfile
import time

from load_client import Process, kipp_server, request_bytes, stream

GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01",
    b"GET /" + b"a" * 70_000,
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n",
    request_bytes("/v1/completions", {"prompt": ["x"] * 3, "n": 99}),
    request_bytes("/v1/chat/completions", {"messages": [{"role": "oracle", "content": 7}]}),
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n" + b"[" * 30,
]
SHARED = ["You are a sailor and tell stories of the sea. " * 12, "You are a fox. You speak in short sentences. " * 20]


def good_request(draw: random.Random) -> tuple[str, dict]:
    tokens = draw.choice([1, 4, 16, 60])
    common = {"max_tokens": tokens, "temperature": draw.choice([0, 0.8]), "seed": draw.randrange(1000)}
    if draw.random() < 0.2:
        common |= {"n": draw.randrange(2, 5)}
    if draw.random() < 0.2:
        common |= {"stop": ["the end", "\n\n"]}
    text = " ".join(draw.choice("sea boat fox hill wind rain stone".split()) for _ in range(draw.choice([3, 40, 400])))
    if draw.random() < 0.5:
        messages = [{"role": "system", "content": draw.choice(SHARED)}, {"role": "user", "content": text}]
        return "/v1/chat/completions", common | {"messages": messages}
    if draw.random() < 0.2:
        common |= {"echo": True, "logprobs": draw.randrange(6)}
    return "/v1/completions", common | {"prompt": text}


class Soak:
    def __init__(self, server: Process, seed: int) -> None:
        self.server = server
        self.draw = random.Random(seed)
        self.count: collections.Counter[str] = collections.Counter()
        self.errors: list[str] = []

    async def garbage(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        data = self.draw.choice(GARBAGE)
        try:
            writer.write(data[: self.draw.randrange(1, len(data) + 1)])
            await writer.drain()
            await asyncio.wait_for(reader.read(200), 0.2)
        except (OSError, asyncio.TimeoutError):
            pass
        finally:
            writer.close()
        self.count["garbage"] += 1

    async def one(self) -> None:
        path, body = good_request(self.draw)
        if self.draw.random() < 0.05:
            await stream(self.server.port, body | {"max_tokens": 60}, path, leave_after=self.draw.randrange(4))
            self.count["abandoned"] += 1
            return
        result = await stream(self.server.port, body, path)
        if result.status == 429:
            self.count["told to wait"] += 1
        elif result.status != 200 or result.error:
            self.errors.append(f"{result.status} {result.error[:300]}")
        else:
            self.count["good"] += 1

    async def client(self, end: float) -> None:
        while time.monotonic() < end:
            try:
                await (self.garbage() if self.draw.random() < 0.05 else self.one())
            except (OSError, asyncio.IncompleteReadError) as error:
                self.errors.append(repr(error))

    async def run(self, minutes: float, clients: int) -> list[int]:
        end = time.monotonic() + minutes * 60
        sizes: list[int] = []

        async def watch() -> None:
            while time.monotonic() < end:
                await asyncio.sleep(min(60, max(0.1, end - time.monotonic())))
                sizes.append(self.server.rss())
                said = ", ".join(f"{n} {what}" for what, n in sorted(self.count.items()))
                print(f"{sizes[-1] / 1e6:.1f} MB; {said}; {len(self.errors)} errors", flush=True)

        await asyncio.gather(watch(), *(self.client(end) for _ in range(clients)))
        return sizes


def pool_is_whole(server: Process) -> list[str]:
    """What is not as it should be once nobody asks any more."""
    for _ in range(300):
        metrics = server.metrics()
        if metrics["kipp_requests_running"] == metrics["kipp_requests_waiting"] == 0:
            break
        time.sleep(0.1)
    wrong = []
    blocks = {name: value for name, value in metrics.items() if name.startswith("kipp_kv_blocks{")}
    if sum(blocks.values()) != metrics["kipp_kv_blocks_capacity"]:
        wrong.append(f"blocks do not add up: {blocks}")
    for state in ("used", "shared"):
        if blocks[f'kipp_kv_blocks{{state="{state}"}}']:
            wrong.append(f"blocks are still {state}")
    if metrics["kipp_kv_blocks_reserved"]:
        wrong.append("blocks are still promised")
    if metrics.get('kipp_kv_bytes{state="used"}'):
        wrong.append("planes are still used")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kipp", default="build/kipp")
    parser.add_argument("--model", default="", help="a model file; default: the demo checkpoint")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("flags", nargs="*", help="more flags of kipp serve, after --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "kipp.log"
        with kipp_server(args.kipp, args.model, args.threads, log, *args.flags) as server:
            soak = Soak(server, args.seed)
            sizes = asyncio.run(soak.run(args.minutes, args.clients))
            wrong = pool_is_whole(server) + soak.errors[:5]
            # The first tenth fills caches and arenas.
            settled = sizes[len(sizes) // 10 :]
            if len(settled) > 3 and max(settled[-3:]) > 1.1 * max(settled[:3]) + 4e6:
                wrong.append(f"memory grew: {[f'{size / 1e6:.1f} MB' for size in sizes]}")
            if (code := server.stop()) != 0:
                wrong.append(f"exit code {code}: {log.read_text()[-2000:]}")
    said = ", ".join(f"{n} {what}" for what, n in sorted(soak.count.items()))
    print(f"{args.minutes:g} minutes: {said}; {len(soak.errors)} errors; memory {sizes[0] / 1e6:.1f} to {sizes[-1] / 1e6:.1f} MB")
    for sentence in wrong:
        print(f"soak: {sentence}", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
