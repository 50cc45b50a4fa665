"""Artifacts as others see them: the gguf package reads what `kipp synthesize` and `kipp quantize` write, and the
numbers in it are what the schemes' definitions say. Nothing here knows the engine's code."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import time

import gguf
import numpy as np
import pytest
import zstandard

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIPP = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build")) / "kipp"
SCHEMES = ["bf16", "q8_0", "affine4_gs32", "scale4_gs32"]
TENSOR_TYPE = {"bf16": "BF16", "q8_0": "Q8_0", "affine4_gs32": "Q4_1", "scale4_gs32": "Q4_0"}
FILE_TYPE = {"bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0", "affine4_gs32": "MOSTLY_Q4_1", "scale4_gs32": "MOSTLY_Q4_0"}
SHAPES = {
    "tiny-tied": dict(hidden=32, layers=3, heads=8, ffn=64, context=2048, theta=1e6, tied=True),
    "tiny-untied": dict(hidden=64, layers=5, heads=16, ffn=96, context=4096, theta=5e6, tied=False),
}
CASES = [(shape, scheme) for shape in SHAPES for scheme in SCHEMES]
ROWS, NAMED, MERGES = 151936, 151669, 151387


def kipp(*arguments):
    return subprocess.run([KIPP, *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
    """(shape, scheme) -> path; the quantized ones come from the BF16 one."""
    folder = tmp_path_factory.mktemp("artifacts")
    paths = {}
    for shape in SHAPES:
        for scheme in SCHEMES:
            path = paths[shape, scheme] = folder / f"{shape}-{scheme}.gguf"
            if scheme == "bf16":
                done = kipp("synthesize", "--shape", shape, "--seed", 7, "--out", path)
            else:
                done = kipp("quantize", paths[shape, "bf16"], path, "--scheme", scheme)
            assert done.returncode == 0, done.stderr
    # The vocabulary is the same bytes in every file, so that reading one of them whole is enough.
    heads = {path.read_bytes().split(b"tokenizer.ggml.add_bos_token")[1][:5_900_000] for path in paths.values()}
    assert len(heads) == 1
    return paths


class QuickReader(gguf.GGUFReader):
    """The package's reader, but past the vocabulary's half a million elements at once: it takes seconds for them,
    and test_vocabulary_is_that_of_the_tokenizer has read them with the reader as it is."""

    def _get_field_parts(self, orig_offs, raw_type):
        if raw_type != gguf.GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind, count = int(self._get(orig_offs, np.uint32)[0]), int(self._get(orig_offs + 4, np.uint64)[0])
        size = 12 + 4 * count
        if kind == gguf.GGUFValueType.STRING:
            head = memoryview(self.data[orig_offs : orig_offs + 6_000_000].tobytes())
            size = 12
            for _ in range(count):
                size += 8 + int.from_bytes(head[size : size + 8], "little")
        return size, [], [], [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType(kind)]


@pytest.fixture(scope="session")
def read(artifacts):
    return functools.cache(lambda shape, scheme: QuickReader(artifacts[shape, scheme]))


@pytest.fixture(scope="session")
def tokenizer():
    packed = (ROOT / "tests" / "data" / "tokenizer.instruct.json.zst").read_bytes()
    return json.loads(zstandard.ZstdDecompressor().stream_reader(packed).read())


def value(reader, key):
    return reader.fields[key].contents()


def expected_tensors(shape):
    s = SHAPES[shape]
    width, kv, hidden, ffn = s["heads"] * 128, 1024, s["hidden"], s["ffn"]
    tensors = {"token_embd.weight": (hidden, ROWS), "output_norm.weight": (hidden,)}
    if not s["tied"]:
        tensors["output.weight"] = (hidden, ROWS)
    for layer in range(s["layers"]):
        parts = {
            "attn_norm": (hidden,), "attn_q": (hidden, width), "attn_k": (hidden, kv), "attn_v": (hidden, kv),
            "attn_q_norm": (128,), "attn_k_norm": (128,), "attn_output": (width, hidden), "ffn_norm": (hidden,),
            "ffn_gate": (hidden, ffn), "ffn_up": (hidden, ffn), "ffn_down": (ffn, hidden),
        }  # fmt: skip
        tensors |= {f"blk.{layer}.{part}.weight": dims for part, dims in parts.items()}
    return tensors


def is_projection(name):
    return name.startswith("blk.") and "norm" not in name


@pytest.mark.parametrize("shape, scheme", CASES)
def test_keys_are_those_of_a_qwen3_model(read, shape, scheme):
    s = SHAPES[shape]
    expected = {
        "general.architecture": "qwen3",
        "general.name": shape,
        "general.alignment": 64,
        "general.file_type": int(gguf.LlamaFileType[FILE_TYPE[scheme]]),
        "qwen3.block_count": s["layers"],
        "qwen3.context_length": s["context"],
        "qwen3.embedding_length": s["hidden"],
        "qwen3.feed_forward_length": s["ffn"],
        "qwen3.attention.head_count": s["heads"],
        "qwen3.attention.head_count_kv": 8,
        "qwen3.attention.layer_norm_rms_epsilon": float(np.float32(1e-6)),
        "qwen3.attention.key_length": 128,
        "qwen3.attention.value_length": 128,
        "qwen3.rope.freq_base": s["theta"],
        "qwen3.vocab_size": ROWS,
        "kipp.format.version": 1,
        "kipp.converter.version": "1",
        "kipp.source.repository": f"synthetic/{shape}",
        "kipp.source.revision": "seed-7",
        "kipp.quant.scheme": scheme,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.eos_token_id": 151645,
        "tokenizer.ggml.bos_token_id": 151643,
        "tokenizer.ggml.padding_token_id": 151643,
        "tokenizer.ggml.add_bos_token": False,
    }
    if scheme != "bf16":
        expected["general.quantization_version"] = gguf.GGML_QUANT_VERSION
    arrays = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}
    reader = read(shape, scheme)
    found = {key: value(reader, key) for key in reader.fields if not key.startswith("GGUF.") and key not in arrays}
    assert found == expected
    assert set(reader.fields) - set(found) == arrays | {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"}
    assert value(reader, "GGUF.version") == 3


def test_vocabulary_is_that_of_the_tokenizer(artifacts, tokenizer):
    reader = gguf.GGUFReader(artifacts["tiny-tied", "bf16"])
    tokens = [None] * ROWS
    kinds = [int(gguf.TokenType.NORMAL)] * ROWS
    for token, index in tokenizer["model"]["vocab"].items():
        tokens[index] = token
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = added["content"]
        kinds[added["id"]] = int(gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED)
    for index in range(NAMED, ROWS):
        tokens[index] = f"[PAD{index}]"
        kinds[index] = int(gguf.TokenType.UNUSED)
    assert value(reader, "tokenizer.ggml.tokens") == tokens
    assert value(reader, "tokenizer.ggml.token_type") == kinds
    merges = value(reader, "tokenizer.ggml.merges")
    assert len(merges) == MERGES
    assert merges == [" ".join(pair) for pair in tokenizer["model"]["merges"]]


@pytest.mark.parametrize("shape, scheme", CASES)
def test_tensors_have_their_names_shapes_and_types(read, shape, scheme):
    reader = read(shape, scheme)
    assert {t.name: tuple(t.shape.tolist()) for t in reader.tensors} == expected_tensors(shape)
    for t in reader.tensors:
        kind = "F32" if "norm" in t.name else TENSOR_TYPE[scheme] if is_projection(t.name) else "BF16"
        assert t.tensor_type.name == kind, t.name
        assert t.data_offset % 64 == 0, t.name


def halves(raw):
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float64)


def decode(tensor):
    """[rows, cols] in double precision, from the block layouts alone."""
    cols, rows = tensor.shape.tolist()
    raw = np.frombuffer(tensor.data.tobytes(), np.uint8)
    kind = tensor.tensor_type.name
    if kind == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64).reshape(rows, cols)
    blocks = raw.reshape(rows * cols // 32, -1)
    scale = halves(blocks[:, 0:2])
    if kind == "Q8_0":
        values = scale * blocks[:, 2:].view(np.int8)
    else:
        packed = blocks[:, 4:] if kind == "Q4_1" else blocks[:, 2:]
        codes = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float64)
        values = scale * codes + halves(blocks[:, 2:4]) if kind == "Q4_1" else scale * (codes - 8)
    return values.reshape(rows, cols)


@pytest.mark.parametrize("shape, scheme", CASES)
def test_the_gguf_package_decodes_the_same_weights(read, shape, scheme):
    for t in read(shape, scheme).tensors:
        if len(t.shape) != 2:
            continue
        mine = decode(t)
        theirs = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64).reshape(mine.shape)
        # The package multiplies and adds in single precision.
        np.testing.assert_allclose(theirs, mine, rtol=3e-7, atol=1e-7, err_msg=t.name)


# What schemes leave of random weights that are close to normal: sum of squared misses over sum of squares.
@pytest.mark.parametrize("scheme, bound", [("q8_0", 2.7e-5), ("affine4_gs32", 4.9e-3), ("scale4_gs32", 6.5e-3)])
@pytest.mark.parametrize("shape", SHAPES)
def test_quantized_weights_stay_close(read, shape, scheme, bound):
    exact = {t.name: t for t in read(shape, "bf16").tensors}
    misses = squares = 0.0
    for t in read(shape, scheme).tensors:
        if not is_projection(t.name):
            assert t.data.tobytes() == exact[t.name].data.tobytes(), t.name
            continue
        original = decode(exact[t.name])
        misses += np.square(decode(t) - original).sum()
        squares += np.square(original).sum()
    assert misses / squares < bound


@pytest.mark.parametrize("shape", SHAPES)
def test_norms_are_exact_in_bf16_and_near_one(read, shape):
    for t in read(shape, "bf16").tensors:
        if "norm" in t.name:
            assert not np.any(t.data.view(np.uint32) & 0xFFFF), t.name
            assert 0.5 < t.data.min() < 1 < t.data.max() < 1.5, t.name


def test_synthesize_gives_equal_bytes_for_equal_seeds(artifacts, tmp_path):
    def write(name, *more):
        done = kipp("synthesize", "--shape", "tiny-tied", "--out", tmp_path / name, *more)
        assert done.returncode == 0, done.stderr
        return (tmp_path / name).read_bytes()

    assert write("seven", "--seed", 7) == artifacts["tiny-tied", "bf16"].read_bytes()
    assert write("eight", "--seed", 8) != artifacts["tiny-tied", "bf16"].read_bytes()
    direct = write("direct", "--seed", 7, "--scheme", "scale4_gs32")
    assert direct == artifacts["tiny-tied", "scale4_gs32"].read_bytes()


@pytest.mark.parametrize("shape, scheme", CASES)
def test_inspect_agrees_with_the_gguf_package(artifacts, read, shape, scheme):
    done = kipp("inspect", artifacts[shape, scheme], "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["id"], found["kind"], found["revision"]) == (shape, "synthetic", "seed-7")
    assert found["scheme"] == scheme
    assert found["file_bytes"] == artifacts[shape, scheme].stat().st_size
    tensors = {t["name"]: t for t in found["tensors"]}
    for t in read(shape, scheme).tensors:
        other = tensors.pop(t.name)
        assert other["shape"] == t.shape.tolist()[::-1]
        assert (other["type"], other["offset"]) == (t.tensor_type.name, t.data_offset)
        assert other["bytes"] == t.n_bytes
    assert not tensors
    bits = {"bf16": 16, "q8_0": 8.5, "affine4_gs32": 5, "scale4_gs32": 4.5}[scheme]
    assert found["bits_per_projection_weight"] == bits
    text = kipp("inspect", artifacts[shape, scheme]).stdout
    assert "random weights" in text and f"{bits:.2f} bits per projection weight" in text


def test_inspect_says_why_it_refuses(artifacts, tmp_path):
    whole = artifacts["tiny-tied", "bf16"].read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[:-1])
    done = kipp("inspect", cut)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        f"kipp inspect: {cut}: file size: expected {len(whole)} bytes, found {len(whole) - 1} "
        "(1 missing, an incomplete copy)\n"
    )
    missing = kipp("inspect", tmp_path / "missing.gguf")
    assert missing.returncode == 1 and "missing.gguf: cannot open" in missing.stderr


def test_inspect_refuses_what_the_gguf_package_wrote(tmp_path):
    path = tmp_path / "foreign.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(28)
    writer.add_tensor("token_embd.weight", np.zeros((8, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    done = kipp("inspect", path)
    assert done.returncode == 1
    assert "kipp.source.repository: expected the key that kipp writes, found none" in done.stderr


def test_bad_values_are_a_sentence_and_exit_code_2(artifacts, tmp_path):
    out = tmp_path / "out.gguf"
    source = artifacts["tiny-tied", "bf16"]
    quantized = artifacts["tiny-tied", "q8_0"]
    cases = [
        (["synthesize", "--shape", "big", "--out", out], 'expected one of qwen3-0.6b-base, '),
        (["synthesize", "--checkpoint", "qwen3-0.5b", "--out", out], 'found "qwen3-0.5b"'),
        (["synthesize", "--shape", "tiny-tied", "--scheme", "q5", "--out", out], 'scheme: expected bf16, '),
        (["synthesize", "--shape", "tiny-tied", "--checkpoint", "qwen3-8b", "--out", out], "shape"),
        (["synthesize", "--out", out], "shape"),
        (["synthesize", "--shape", "tiny-tied", "--seed", "-1", "--out", out], '--seed: expected a whole number'),
        (["synthesize", "--shape", "tiny-tied", "--seed", "1e3", "--out", out], 'found "1e3"'),
        (["synthesize", "--shape", "tiny-tied", "--out", tmp_path], "found a directory"),
        (["quantize", source, out, "--scheme", "bf16"], "found bf16, which is what the input has"),
        (["quantize", source, source, "--scheme", "q8_0"], "expected another file than IN"),
        (["quantize", quantized, out, "--scheme", "scale4_gs32"], "expected bf16, found q8_0"),
    ]
    for arguments, says in cases:
        done = kipp(*arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert says in done.stderr, (arguments, done.stderr)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_write_leaves_nothing(tmp_path, stop):
    out = tmp_path / "big.gguf"
    partial = tmp_path / "big.gguf.partial"
    process = subprocess.Popen(
        [KIPP, "synthesize", "--checkpoint", "qwen3-1.7b", "--out", out], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (partial.exists() and partial.stat().st_size > 20_000_000):
        time.sleep(0.01)
    process.send_signal(stop)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "kipp synthesize: interrupted after" in errors
    assert list(tmp_path.iterdir()) == []


def test_a_killed_write_never_takes_the_name(tmp_path):
    out = tmp_path / "big.gguf"
    process = subprocess.Popen(
        [KIPP, "synthesize", "--checkpoint", "qwen3-1.7b", "--out", out], stderr=subprocess.DEVNULL
    )
    partial = tmp_path / "big.gguf.partial"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (partial.exists() and partial.stat().st_size > 20_000_000):
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert [p.name for p in tmp_path.iterdir()] == ["big.gguf.partial"]
    done = kipp("synthesize", "--shape", "tiny-tied", "--seed", 7, "--out", out)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["big.gguf"]
