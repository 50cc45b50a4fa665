"""Full FP32 logits of the demo checkpoint from transformers, for the engine's oracle gate.

    python3 tools/demo/golden.py HF_DIRECTORY tests/data/golden

Writes demo-N.npy (float32 [151936], the logits after the last token) and demo.json (token ids, versions, SHA-256).
"""

import hashlib
import json
import os
import platform
import sys

import numpy as np

# "Once upon a time"; a chat prompt with the empty think block; a recall task with a token that has no row of its own.
PROMPTS = [
    [12522, 5193, 264, 882],
    [151644, 872, 198, 40451, 752, 264, 3364, 911, 264, 2632, 38835, 13, 151645, 198, 151644, 77091, 198, 151667, 271,
     151668, 271],
    [785, 1372, 315, 386, 8832, 374, 220, 19, 23, 17, 16, 624, 785, 1372, 315, 65891, 374, 220, 22, 15, 21, 624, 150000,
     14582, 25, 3555, 374, 279, 1372, 315, 386, 8832, 5267, 16141, 25, 220],
]


def main(source, out):
    import torch
    import transformers
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager")
    model.to(device).eval()
    os.makedirs(out, exist_ok=True)
    cases = []
    with torch.no_grad():
        for i, ids in enumerate(PROMPTS):
            logits = model(torch.tensor([ids], device=device)).logits[0, -1].float().cpu().numpy()
            name = f"demo-{i}.npy"
            np.save(os.path.join(out, name), logits)
            with open(os.path.join(out, name), "rb") as f:
                digest = hashlib.sha256(f.read()).hexdigest()
            cases.append({"ids": ids, "file": name, "sha256": digest, "arg_max": int(logits.argmax())})
    with open(os.path.join(source, "model.safetensors"), "rb") as f:
        weights = hashlib.sha256(f.read()).hexdigest()
    with open(os.path.join(out, "demo.json"), "w") as f:
        json.dump({"checkpoint": "kipp-demo", "weights_sha256": weights, "attention": "eager", "dtype": "float32",
                   "tf32": False, "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                   "torch": torch.__version__, "transformers": transformers.__version__,
                   "python": platform.python_version(), "cases": cases}, f, indent=1)
        f.write("\n")
    print(json.dumps([(c["file"], c["arg_max"]) for c in cases]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
