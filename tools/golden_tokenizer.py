#!/usr/bin/env python3
"""Writes the expected ids into tests/cases/tokenizer/*.tok, as Hugging Face `tokenizers` gives them.

A case is one line, a JSON object: `why` it is there, the `text` (times `repeat`, if given), `added` "text" where added
tokens are ordinary text, and `ids`, in which {"times": n, "ids": [...]} stands for these ids n times. Lines that are
empty or begin with # are kept. To add a case, write its line without `ids` and run this; --check only compares.
"""

import argparse
import json
import pathlib
import sys

import zstandard
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).parents[1]


def shortened(ids):
    out, at = [], 0
    while at < len(ids):
        for period in range(1, 9):
            unit, times = ids[at:at + period], 1
            while ids[at + times * period:at + (times + 1) * period] == unit:
                times += 1
            if times > 4:
                out.append({"times": times, "ids": unit})
                at += times * period
                break
        else:
            out.append(ids[at])
            at += 1
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if something would change")
    arguments = parser.parse_args()

    packed = (ROOT / "tests" / "data" / "tokenizer.instruct.json.zst").read_bytes()
    tokenizer = json.loads(zstandard.ZstdDecompressor().decompressobj().decompress(packed))
    control = Tokenizer.from_str(json.dumps(tokenizer))
    text = Tokenizer.from_str(json.dumps(tokenizer | {"added_tokens": []}))

    stale = []
    for path in sorted((ROOT / "tests" / "cases" / "tokenizer").glob("*.tok")):
        lines = []
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                case = json.loads(line)
                reference = text if case.get("added") == "text" else control
                ids = reference.encode(case["text"] * case.get("repeat", 1), add_special_tokens=False).ids
                line = json.dumps(case | {"ids": shortened(ids)})
            lines.append(line)
        written = "\n".join(lines) + "\n"
        if written != path.read_text():
            stale.append(path.name)
            if not arguments.check:
                path.write_text(written)
    if arguments.check and stale:
        sys.exit("golden_tokenizer: not what tokenizers gives: " + ", ".join(stale))
    print("rewritten:", ", ".join(stale) or "nothing")


if __name__ == "__main__":
    main()
