"""Writes golden logits: what Hugging Face transformers computes from the weights of kipp artifacts.

    python tools/golden.py tiny-tied.gguf tiny-untied.gguf --out tests/data/golden

For each artifact the Qwen3ForCausalLM of transformers gets the artifact's weights (dequantized to float32) and
evaluates fixed token ids with eager attention in float32, no TF32. The full logits of each prompt's last position
go to NAME-N.npy, everything needed to repeat the run to NAME.json: versions, the command, the artifact's SHA-256,
the ids. `./dev gate` compares the engine with them. Needs torch, transformers and numpy, not gguf.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys

import numpy as np
import torch
import transformers

from gguf_weights import GgufWeights
from prompts import CHAT, STORY

# transformers' names of the tensors of one layer.
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def transformers_name(name: str) -> str:
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{LAYER[parts[2]]}.weight"
    return f"{OUTER[parts[0]]}.weight"


def config_of(weights: GgufWeights) -> transformers.Qwen3Config:
    of = {key.removeprefix("qwen3."): value for key, value in weights.metadata.items() if key.startswith("qwen3.")}
    return transformers.Qwen3Config(
        vocab_size=weights.tensors["token_embd.weight"].rows,
        hidden_size=of["embedding_length"],
        intermediate_size=of["feed_forward_length"],
        num_hidden_layers=of["block_count"],
        num_attention_heads=of["attention.head_count"],
        num_key_value_heads=of["attention.head_count_kv"],
        head_dim=of["attention.key_length"],
        rms_norm_eps=1e-6,
        max_position_embeddings=of["context_length"],
        rope_parameters={"rope_type": "default", "rope_theta": float(of["rope.freq_base"])},
        tie_word_embeddings="output.weight" not in weights.tensors,
        attn_implementation="eager",
    )


def model_of(weights: GgufWeights, device: str) -> transformers.Qwen3ForCausalLM:
    config = config_of(weights)
    with torch.device("meta"):
        model = transformers.Qwen3ForCausalLM(config)
    model = model.to_empty(device=device).to(torch.float32)
    state = {}
    for name, tensor in weights.tensors.items():
        values = tensor.values()
        state[transformers_name(name)] = torch.from_numpy(values[0] if tensor.rows == 1 else values)
    missing, unexpected = model.load_state_dict(state, strict=False)
    expected_missing = ["lm_head.weight"] if config.tie_word_embeddings else []
    if unexpected or list(missing) not in ([], expected_missing):
        raise ValueError(f"{weights.path}: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    # The rotation table is no parameter: to_empty left it undefined.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(device)
    return model.eval()


def write_golden(path: str, out: str, device: str) -> None:
    weights = GgufWeights(path)
    model = model_of(weights, device)
    checkpoint, scheme = weights.metadata["general.name"], weights.metadata["kipp.quant.scheme"]
    cases = []
    for number, ids in enumerate([STORY, CHAT]):
        with torch.no_grad():
            output = model(input_ids=torch.tensor([ids], device=device), use_cache=False)
        logits = output.logits[0, -1].float().cpu().numpy()
        file = f"{checkpoint}-{scheme}-{number}.npy"
        np.save(os.path.join(out, file), logits)
        cases.append({"ids": ids, "file": file, "arg_max": int(logits.argmax())})
    manifest = {
        "checkpoint": checkpoint,
        "revision": weights.metadata["kipp.source.revision"],
        "scheme": scheme,
        "artifact_sha256": weights.sha256(),
        "command": "python tools/golden.py " + " ".join(os.path.basename(a) for a in sys.argv[1:]),
        "attention": "eager",
        "dtype": "float32",
        "tf32": False,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cases": cases,
    }
    with open(os.path.join(out, f"{checkpoint}-{scheme}.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.write("\n")
    print(f"{checkpoint} {scheme}: best next tokens {[case['arg_max'] for case in cases]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", nargs="+", help="kipp artifacts (.gguf)")
    parser.add_argument("--out", required=True, help="folder for NAME-N.npy and NAME.json")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    os.makedirs(args.out, exist_ok=True)
    for path in args.artifacts:
        write_golden(path, args.out, args.device)


if __name__ == "__main__":
    main()
