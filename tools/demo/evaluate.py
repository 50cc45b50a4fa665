"""Figures of the finished checkpoint, all from the stored (snapped) weights in FP32."""

import json
import math
import os
import random

import numpy as np
import torch

from tools.demo import data, export, recall, stories
from tools.demo.model import MATRICES, NORMS, Demo, load_shape, rms_norm, token_losses

CONTEXT = 4096
BUCKETS = [(16, 64), (64, 256), (256, 1024), (1024, 2048), (2048, 4096), (6500, 7500)]
PLAIN = ["Once upon a time"] * 5
# Openings that the generator never writes: what happens outside the story-telling that was trained most.
OTHER = ["There was once a poor woodcutter", "The little girl opened the door and",
         "One cold winter morning, a small grey mouse"]
TOPICS = ["a brave little fox who wanted to fly", "a dragon who was afraid of the dark",
          "a lost kitten", "two friends who find an old map", "a robot and a bird"]


def load(path, device):
    """The stored model over its compact vocabulary, in float32."""
    stored, _ = export.read_safetensors(path)
    full, rows, _ = export.unpack_tensors(path)
    shape = load_shape()
    model = Demo(shape, len(rows), device, torch.float32)
    compact = np.frombuffer(stored["model.embed_tokens.weight.codes"][2], np.int8).reshape(len(rows), -1)
    scale = np.frombuffer(stored["model.embed_tokens.weight.exponents"][2], np.int8).astype(np.int32)
    put = lambda name, array: model.live[name].copy_(torch.from_numpy(np.ascontiguousarray(array)).to(device))
    put("embedding", np.ldexp(compact.astype(np.float32), scale[:, None]))
    put("final_norm", full["model.norm.weight"])
    for name in MATRICES + NORMS:
        put(name, np.stack([full[f"model.layers.{i}.{export.NAMES[name]}.weight"]
                            for i in range(shape["num_hidden_layers"])]))
    remap = np.full(export.VOCABULARY, len(rows) - 1, np.int64)
    remap[rows[:-1]] = np.arange(len(rows) - 1)
    return model, rows[:-1].copy(), remap


@torch.no_grad()
def states(model, documents):
    """Hidden states of several documents in one pass, and where each ends."""
    device = model.embedding.device
    ids = torch.from_numpy(np.concatenate(documents).astype(np.int64)).to(device)
    lengths = [len(d) for d in documents]
    positions = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths])).to(device)
    ends = torch.tensor(np.cumsum([0] + lengths), dtype=torch.int32)
    return model.hidden_states(ids, positions, [(len(ids), max(lengths), ends)], plain=True), ends


@torch.no_grad()
def negative_log_likelihoods(model, documents):
    """Per-token losses over the full vocabulary, and which targets have a row of their own."""
    losses, known = [], []
    shared = len(model.embedding) - 1
    for d in documents:
        for at in range(0, len(d) - 1, CONTEXT):
            part = d[at:at + CONTEXT + 1]
            x, _ = states(model, [part[:-1]])
            target = torch.from_numpy(part[1:].astype(np.int64)).to(x.device)
            loss = token_losses(x, model.final_norm, model.embedding, target, model.shared_bias)
            # One of the tokens that share the row, not all of them together.
            loss = loss + (target == shared) * model.shared_bias
            losses.append(loss.double().cpu().numpy())
            known.append((target != shared).cpu().numpy())
    return np.concatenate(losses), np.concatenate(known)


def perplexities(model, documents, text_bytes=None):
    loss, known = negative_log_likelihoods(model, documents)
    out = {"tokens": len(loss), "perplexity": math.exp(loss.mean()),
           "perplexity_known": math.exp(loss[known].mean()), "known_share": float(known.mean())}
    if text_bytes:
        out["bits_per_byte"] = loss.sum() / math.log(2) / text_bytes
    return out


@torch.no_grad()
def recall_accuracy(model, tokenizer, remap, per_bucket, seed=20):
    """Greedy decoding is right exactly when every token of the answer is the arg max after the true ones before it."""
    encode = lambda text: remap[tokenizer.encode(text).ids]
    count = lambda text: len(tokenizer.encode(text).ids)
    rows = []
    for low, high in BUCKETS:
        for i in range(per_bucket):
            rng = random.Random(f"recall test {seed} {low} {i}")
            distance = int(math.exp(rng.uniform(math.log(low + 8), math.log(high))))
            form, kind = ("plain", "chat")[i % 2], ("list", "story")[(i // 2) % 2]
            test = recall.make_test(rng, distance, form, kind, recall.story_filler, count)
            prompt = encode(test["prompt"])
            answer = encode(("" if form == "chat" else " ") + test["answer"] + ("<|im_end|>" if form == "chat" else "\n"))
            ids = np.concatenate([prompt, answer])
            if len(ids) > model.shape["max_position_embeddings"]:
                continue
            x, _ = states(model, [ids[:-1]])
            tail = rms_norm(x[-len(answer):], model.final_norm) @ model.embedding.T
            right = (tail.argmax(-1).cpu().numpy() == answer).all()
            rows.append({"low": low, "high": high, "distance": test["distance"], "form": form, "kind": kind,
                         "right": bool(right)})
    return rows


@torch.no_grad()
def complete(model, prompts, remap, used, length, temperature, top_p, seed):
    """Samples every prompt with a generator of its own; stops at a stop token."""
    device = model.embedding.device
    documents = [remap[p] for p in prompts]
    outs, done = [[] for _ in prompts], [False] * len(prompts)
    draws = [torch.Generator().manual_seed(seed + i) for i in range(len(prompts))]
    stops = {data.END_TEXT, data.IM_END}
    for _ in range(length):
        live = [i for i, d in enumerate(done) if not d]
        if not live:
            break
        x, ends = states(model, [documents[i] for i in live])
        last = x[(ends[1:] - 1).long().to(device)]
        logits = (rms_norm(last, model.final_norm) @ model.embedding.T)[:, :-1].double().cpu()
        for row, i in enumerate(live):
            if temperature == 0:
                choice = int(logits[row].argmax())
            else:
                p = torch.softmax(logits[row] / temperature, -1)
                order = p.argsort(descending=True)
                keep = order[:int((p[order].cumsum(0) < top_p).sum()) + 1]
                choice = int(keep[torch.multinomial(p[keep], 1, generator=draws[i])])
            token = int(used[choice])
            if token in stops:
                done[i] = True
                continue
            outs[i].append(token)
            documents[i] = np.append(documents[i], choice)
    return outs, done


def samples(model, tokenizer, remap, used, length=420, temperature=0.7, top_p=0.9, seed=1):
    chat = ["<|im_start|>user\nTell me a story about " + t + ".<|im_end|>\n<|im_start|>assistant\n" for t in TOPICS]
    chat[1] += "<think>\n\n</think>\n\n"
    chat[3] += "<think>\n\n</think>\n\n"
    prompts = PLAIN + chat + OTHER
    ids = [np.array(tokenizer.encode(p).ids) for p in prompts]
    told = []
    for heat, chosen in ((temperature, range(len(prompts))), (0, (0, len(PLAIN)))):
        outs, done = complete(model, [ids[i] for i in chosen], remap, used, length, heat, top_p, seed)
        told += [{"prompt": prompts[i], "temperature": heat, "top_p": top_p, "seed": seed + n, "finished": d,
                  "text": tokenizer.decode(o, skip_special_tokens=False)}
                 for n, (i, o, d) in enumerate(zip(chosen, outs, done))]
    return told


def generated_documents(writer, count, seed=999):
    """Stories the training never saw: its generators are seeded by batch."""
    rng = random.Random(f"held-out stories {seed}")
    return [writer.document("story", rng, 0)[0] for _ in range(count)]


def evaluate(checkpoint, folder, out, per_bucket=200, device="cuda"):
    torch.backends.cuda.matmul.allow_tf32 = False
    model, used, remap = load(checkpoint, device)
    tokenizer = data.load_tokenizer(os.path.join(folder, "tokenizer.json.xz"))
    held = data.load_xz(os.path.join(folder, "heldout.xz"))
    with open(os.path.join(folder, "heldout.json")) as f:
        sizes = json.load(f)
    kinds = {}
    for name, audiences in (("all held-out works", ("children", "adult")), ("children's works", ("children",)),
                            ("works for adults", ("adult",))):
        chosen = [i for i, a in enumerate(sizes["audience"]) if a in audiences]
        kinds[name] = perplexities(model, [held[i] for i in chosen], sum(sizes["bytes"][i] for i in chosen))
    writer = data.Writer(tokenizer, remap.astype(np.uint16))
    kinds["held-out generated stories"] = perplexities(model, generated_documents(writer, 400))
    print(json.dumps(kinds, indent=1), flush=True)
    told = samples(model, tokenizer, remap, used)
    for s in told[:1] + told[-2:]:
        print("----\n" + s["prompt"] + " =>\n" + s["text"], flush=True)
    tests = recall_accuracy(model, tokenizer, remap, per_bucket)
    table = {}
    for low, high in BUCKETS:
        mine = [t for t in tests if t["low"] == low]
        table[f"{low}-{high}"] = {"tests": len(mine), "right": float(np.mean([t["right"] for t in mine])),
                                  **{f"{f} {k}": float(np.mean([t["right"] for t in mine if t["form"] == f and t["kind"] == k] or [0]))
                                     for f in ("plain", "chat") for k in ("list", "story")}}
    print(json.dumps(table, indent=1), flush=True)
    result = {"perplexity": kinds, "recall": table, "samples": told}
    with open(out, "w") as f:
        json.dump(result, f, indent=1)
    return result
