"""kipp's tokenizer against Hugging Face `tokenizers` over the same tokenizer.json: equal id for id.

KIPP_TEXT may name one more text file to compare on.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys

import pytest
import zstandard
from tokenizers import Tokenizer

from nasty_text import NastyText

ROOT = pathlib.Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
PROBE = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build")) / "tests" / "tokenize_probe"
N_STRINGS = 200_000
TEXTS = [DATA / "prose_sample.txt"] + [pathlib.Path(p) for p in [os.environ.get("KIPP_TEXT")] if p]


def unpacked(name):
    return zstandard.ZstdDecompressor().decompressobj().decompress((DATA / name).read_bytes()).decode()


INSTRUCT = unpacked("tokenizer.instruct.json.zst")
ADDED_TOKENS = [t["content"] for t in json.loads(INSTRUCT)["added_tokens"]]


@pytest.fixture(scope="session")
def with_added_tokens():
    return Tokenizer.from_str(INSTRUCT)


@pytest.fixture(scope="session")
def without_added_tokens():
    return Tokenizer.from_str(json.dumps(json.loads(INSTRUCT) | {"added_tokens": []}))


def probe(mode, strings):
    """The probe's answers as byte strings."""
    encoded = [s if isinstance(s, bytes) else s.encode() for s in strings]
    data = b"".join(struct.pack("<I", len(s)) + s for s in encoded)
    out = subprocess.run([PROBE, mode], input=data, stdout=subprocess.PIPE, check=True).stdout
    width = 1 if mode == "round-trip" else 4
    answers, at = [], 0
    for _ in encoded:
        size = 4 + width * struct.unpack_from("<I", out, at)[0]
        answers.append(out[at + 4:at + size])
        at += size
    assert at == len(out)
    return answers


def numbers(answer):
    return list(struct.unpack(f"<{len(answer) // 4}I", answer))


def assert_equal_ids(mode, strings, reference):
    answers = probe(mode, strings)
    for begin in range(0, len(strings), 10_000):  # by parts: the reference's encodings are large
        part = strings[begin:begin + 10_000]
        expected = reference.encode_batch_fast(part, add_special_tokens=False)
        for string, answer, encoding in zip(part, answers[begin:], expected):
            assert numbers(answer) == encoding.ids, ascii(string)


def test_generated_strings(with_added_tokens):
    text = NastyText("tokenizer equality", ADDED_TOKENS)
    assert_equal_ids("control", [text.string() for _ in range(N_STRINGS)], with_added_tokens)


def test_generated_strings_whose_added_tokens_are_text(without_added_tokens):
    text = NastyText("added tokens as text", ADDED_TOKENS)
    assert_equal_ids("text", [text.string() for _ in range(N_STRINGS // 10)], without_added_tokens)


def test_rendered_chats(with_added_tokens):
    conversations = json.loads((DATA / "golden_renders.json").read_text())
    assert len(conversations) == 23
    renders = [text for conversation in conversations for text in conversation["rendered"].values() if
               isinstance(text, str)]
    assert_equal_ids("control", renders, with_added_tokens)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_prose(path, with_added_tokens):
    """Whole, so that long texts are seen too, and by lines, so that many beginnings and ends are."""
    text = path.read_bytes().decode()
    assert_equal_ids("control", [text] + text.split("\n"), with_added_tokens)


def every_character(make):
    """Strings that hold make(c) for every character c, a hundred characters to a string.

    Of the planes that hold nothing but unassigned and private characters, a sample."""
    code_points = [*range(0xD800), *range(0xE000, 0x40000), *range(0x40000, 0xE0000, 97), *range(0xE0000, 0xE1000),
                   *range(0xE1000, 0x110000, 97)]
    characters = list(map(chr, code_points))
    return ["\n".join(map(make, characters[i:i + 100])) for i in range(0, len(characters), 100)]


def test_every_character_is_of_the_right_class(with_added_tokens):
    """Next to a letter, a number, a space, a symbol, an apostrophe and itself, each character splits as it should."""
    strings = every_character(lambda c: f"a{c}b {c}{c}  {c}.{c}1'{c}")
    for string, answer in zip(strings, probe("pieces", strings)):
        normal = with_added_tokens.normalizer.normalize_str(string)
        pieces = with_added_tokens.pre_tokenizer.pre_tokenize_str(normal)  # spelled one character per byte
        assert numbers(answer) == [len(piece) for piece, _ in pieces], ascii(string)


def test_every_character_is_normalized(with_added_tokens):
    """Alone, before and after marks of a low and a high combining class, and twice."""
    strings = every_character(lambda c: f"{c}\u0334a{c}\u0345{c}\u0345{c}")
    for string, answer in zip(strings, probe("round-trip", strings)):
        assert answer.decode() == with_added_tokens.normalizer.normalize_str(string), ascii(string)


def test_golden_ids_are_current():
    """The ids in tests/cases/tokenizer, which the C++ tests read, are what the pinned reference gives."""
    check = subprocess.run([sys.executable, ROOT / "tools" / "golden_tokenizer.py", "--check"], capture_output=True,
                           text=True)
    assert check.returncode == 0, check.stderr
