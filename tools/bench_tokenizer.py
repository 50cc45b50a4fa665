#!/usr/bin/env python3
"""Compares the speed of kipp's tokenizer with that of Hugging Face `tokenizers`; prints a Markdown table.

Both encode the same text, whole, on one thread, in turns. Figures are megabytes per second of processor time, the best
of all rounds for either side; the ratio is the median of the ratios of the rounds, so that a disturbance of the
machine that lasts longer than a round does not favour one side.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402  (after the environment that it reads)
import zstandard  # noqa: E402

ROOT = pathlib.Path(__file__).parents[1]
TITLES = {
    "prose": "English prose", "code": "C++ code", "chinese": "Chinese", "one_letter": "one letter, 2 MB",
    "spaces": "spaces, 2 MB", "newlines": "newlines, 2 MB", "blank_lines": "blank lines, 2 MB",
    "random_letters": "random letters, 2 MB", "unordered_marks": "unordered combining marks, 2 MB",
    "cut_control_tokens": "cut control tokens, 2 MB",
}


def reference():
    packed = (ROOT / "tests" / "data" / "tokenizer.instruct.json.zst").read_bytes()
    return tokenizers.Tokenizer.from_str(zstandard.ZstdDecompressor().decompressobj().decompress(packed).decode())


def reference_seconds(tokenizer, text):
    start = time.process_time()
    tokenizer.encode_batch_fast([text], add_special_tokens=False)
    return time.process_time() - start


def kipp_seconds(bench, name):
    """Processor seconds of one encoding, the mean over at least 0.2 s."""
    out = subprocess.run([bench, f"--benchmark_filter=^encode/{name}$", "--benchmark_min_time=0.2",
                          "--benchmark_format=json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    (result,) = json.loads(out)["benchmarks"]
    if "error_message" in result:
        raise RuntimeError(f"{name}: {result['error_message']}")
    return result["cpu_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[result["time_unit"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = os.environ.get("KIPP_BUILD", ROOT / "build")
    parser.add_argument("--bench", type=pathlib.Path, default=pathlib.Path(build) / "tokenizer_bench")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    tokenizer = reference()
    print(f"| text | bytes | tokens | kipp MB/s | tokenizers {tokenizers.__version__} MB/s | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([arguments.bench, "--dump", folder], check=True)
        for name, title in TITLES.items():
            text = (pathlib.Path(folder) / f"{name}.txt").read_bytes()
            n_tokens = len(tokenizer.encode(text.decode(), add_special_tokens=False).ids)
            rounds = [(kipp_seconds(arguments.bench, name), reference_seconds(tokenizer, text.decode()))
                      for _ in range(arguments.rounds)]
            kipp, theirs = (len(text) / 1e6 / min(side) for side in zip(*rounds))
            ratio = statistics.median(b / a for a, b in rounds)
            print(f"| {title} | {len(text):,} | {n_tokens:,} | {kipp:.1f} | {theirs:.2f} | {ratio:.0f} |", flush=True)


if __name__ == "__main__":
    main()
