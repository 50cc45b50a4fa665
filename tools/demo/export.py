"""The demo checkpoint as a file: int8 codes and row exponents, and back to plain Hugging Face form.

kipp-demo.safetensors holds, for every 2-D tensor NAME, `NAME.codes` (I8 [rows, columns]) and
`NAME.exponents` (I8 [rows]); a weight is code * 2^exponent, exact in BF16. The embedding holds the rows of the
token ids listed in `model.embed_tokens.weight.rows` (I32); the last row has id -1 and stands for every id not
listed. Norms are BF16 under their own names.

    python3 tools/demo/export.py unpack assets/kipp-demo.safetensors OUT   # config.json, model.safetensors
"""

import hashlib
import json
import os
import struct
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
VOCABULARY = 151936
SIZES = {"I8": 1, "I32": 4, "BF16": 2, "F32": 4}
NAMES = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
         "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "input_norm": "input_layernorm",
         "post_norm": "post_attention_layernorm", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}


def write_safetensors(path, tensors, metadata):
    """tensors: {name: (dtype, shape, bytes)} in the order given."""
    header, at = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        assert len(data) == SIZES[dtype] * int(np.prod(shape)), name
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}, metadata"""
    with open(path, "rb") as f:
        blob = f.read()
    size = struct.unpack_from("<Q", blob)[0]
    header = json.loads(blob[8:8 + size])
    metadata = header.pop("__metadata__", {})
    base = 8 + size
    return {n: (t["dtype"], t["shape"], blob[base + t["data_offsets"][0]:base + t["data_offsets"][1]])
            for n, t in header.items()}, metadata


def to_bf16(values):
    """Bits of float32 values that BF16 holds exactly."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any(), "a value is not exact in BF16"
    return (bits >> 16).astype(np.uint16)


def from_bf16(data):
    return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)


def pack(model, used, path, metadata):
    """Writes a snapped model. `used` are the token ids of all rows but the last."""
    tensors = {}

    def matrix(name, codes, exponents):
        tensors[name + ".codes"] = ("I8", codes.shape, codes.cpu().numpy().tobytes())
        tensors[name + ".exponents"] = ("I8", exponents.shape, exponents.cpu().numpy().tobytes())

    def norm(name, weight):
        data = to_bf16(weight.float().cpu().numpy()).tobytes()
        tensors[name] = ("BF16", weight.shape, data)

    matrix("model.embed_tokens.weight", *model.codes("embedding"))
    rows = np.append(used, -1).astype(np.int32)
    tensors["model.embed_tokens.weight.rows"] = ("I32", rows.shape, rows.tobytes())
    coded = {name: model.codes(name) for name in ("q", "k", "v", "o", "gate", "up", "down")}
    for i in range(model.shape["num_hidden_layers"]):
        for name, official in NAMES.items():
            full = f"model.layers.{i}.{official}.weight"
            if name in coded:
                matrix(full, coded[name][0][i], coded[name][1][i])
            else:
                norm(full, model.live[name][i])
    norm("model.norm.weight", model.live["final_norm"])
    write_safetensors(path, tensors, metadata)


def unpack_tensors(path):
    """Float32 arrays under Hugging Face names, the embedding with all its rows."""
    stored, metadata = read_safetensors(path)
    out = {}
    for name, (dtype, shape, data) in stored.items():
        if name.endswith(".codes"):
            base = name[:-len(".codes")]
            codes = np.frombuffer(data, np.int8).reshape(shape).astype(np.float32)
            exponents = np.frombuffer(stored[base + ".exponents"][2], np.int8).astype(np.int32)
            out[base] = np.ldexp(codes, exponents[:, None])
        elif dtype == "BF16":
            out[name] = from_bf16(data).reshape(shape)
    rows = np.frombuffer(stored["model.embed_tokens.weight.rows"][2], np.int32)
    assert rows[-1] == -1
    compact = out["model.embed_tokens.weight"]
    full = np.repeat(compact[-1:], VOCABULARY, 0)
    full[rows[:-1]] = compact[:-1]
    out["model.embed_tokens.weight"] = full
    return out, rows, metadata


def config(shape):
    return {"architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
            "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
            "hidden_size": shape["hidden_size"], "initializer_range": 0.02,
            "intermediate_size": shape["intermediate_size"],
            "max_position_embeddings": shape["max_position_embeddings"], "max_window_layers": shape["num_hidden_layers"],
            "model_type": "qwen3", "num_attention_heads": shape["num_attention_heads"],
            "num_hidden_layers": shape["num_hidden_layers"], "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
            "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
            "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True,
            "use_sliding_window": False, "vocab_size": VOCABULARY}


def unpack(path, out):
    """A Hugging Face directory, as transformers reads it."""
    os.makedirs(out, exist_ok=True)
    tensors, _, _ = unpack_tensors(path)
    with open(os.path.join(HERE, "shape.json")) as f:
        shape = json.load(f)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config(shape), f, indent=2)
    with open(os.path.join(out, "generation_config.json"), "w") as f:
        json.dump({"bos_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643],
                   "pad_token_id": 151643, "temperature": 0.6, "top_k": 20, "top_p": 0.95}, f, indent=2)
    write_safetensors(os.path.join(out, "model.safetensors"),
                      {n: ("BF16", t.shape, to_bf16(t).tobytes()) for n, t in tensors.items()}, {"format": "pt"})


def entropy_bytes(path):
    """What an ideal coder with one table a tensor would need for the codes."""
    total = 0.0
    for name, (_, _, data) in read_safetensors(path)[0].items():
        counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
        p = counts[counts > 0] / counts.sum()
        total += -(p * np.log2(p)).sum() * counts.sum() / 8 if name.endswith(".codes") else len(data)
    return int(total)


def split(path, out, size=15 << 20):
    with open(path, "rb") as f:
        blob = f.read()
    for i in range(0, len(blob), size):
        with open(os.path.join(out, f"part{i // size:02d}.bin"), "wb") as f:
            f.write(blob[i:i + size])
    print("sha256", hashlib.sha256(blob).hexdigest(), "bytes", len(blob))


def join(folder, path):
    with open(path, "wb") as f:
        for name in sorted(n for n in os.listdir(folder) if n.startswith("part") and n.endswith(".bin")):
            with open(os.path.join(folder, name), "rb") as g:
                f.write(g.read())
    with open(path, "rb") as f:
        print("sha256", hashlib.sha256(f.read()).hexdigest())


if __name__ == "__main__":
    {"unpack": unpack, "split": split, "join": join}[sys.argv[1]](sys.argv[2], sys.argv[3])
