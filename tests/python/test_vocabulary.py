"""The compiled-in vocabulary is what tools/make_vocabulary.py makes of Qwen's tokenizer.json."""

import json
import pathlib
import subprocess
import sys

import pytest
import zstandard

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "make_vocabulary.py"
INSTRUCT = ROOT / "tests" / "data" / "tokenizer.instruct.json.zst"


def unpack(path):
    return zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())


def make(source, output):
    return subprocess.run([sys.executable, SCRIPT, source, output], capture_output=True, text=True)


@pytest.mark.parametrize("variant", ["instruct", "base"])
def test_asset_is_reproduced(variant, tmp_path):
    made = make(ROOT / "tests" / "data" / f"tokenizer.{variant}.json.zst", tmp_path / "vocabulary.zst")
    assert made.returncode == 0, made.stderr
    assert unpack(tmp_path / "vocabulary.zst") == unpack(ROOT / "assets" / "qwen3_vocabulary.zst")


def swap_merges(tokenizer):
    merges = tokenizer["model"]["merges"]
    merges[1000], merges[1001] = merges[1001], merges[1000]


def rename_added_token(tokenizer):
    tokenizer["added_tokens"][0]["content"] = "<|end|>"


def drop_byte(tokenizer):
    vocab = tokenizer["model"]["vocab"]
    vocab["!"], vocab["Ġthe"] = vocab["Ġthe"], vocab["!"]


@pytest.mark.parametrize("change, message", [
    (swap_merges, "expected merge 1000 to make token 1256, found 1257"),
    (rename_added_token, "'<|end|>' is not token 151643"),
    (drop_byte, "expected byte 33 among the first 256 tokens"),
])
def test_another_vocabulary_is_refused(change, message, tmp_path):
    tokenizer = json.loads(unpack(INSTRUCT))
    change(tokenizer)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    made = make(tmp_path / "tokenizer.json", tmp_path / "vocabulary.zst")
    assert made.returncode == 1
    assert message in made.stderr
    assert not (tmp_path / "vocabulary.zst").exists()
