#!/usr/bin/env python3
"""Trains kipp-demo, the small Qwen3 checkpoint that ships with the repository.

    python3 tools/train_demo.py prepare --corpus CORPUS --tokenizer TOKENIZER.json --out WORK   # tokens, vocabulary
    python3 tools/train_demo.py train   --data WORK --out RUN --steps 8000                      # one GPU
    python3 tools/train_demo.py finish  --data WORK --run RUN --out OUT                         # figures

docs/DEMO.md says what the data is, what came out, and with which numbers.
"""

import argparse
import json
import os
import sys
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tools.demo import data, export  # noqa: E402

FORMAT = "kipp-demo-1"


def to_device(batch, device):
    import torch
    ids, targets, weights, positions, short_ends, long_ends = batch
    move = lambda a: torch.from_numpy(a).to(device, non_blocking=True)
    wide = lambda a: move(a.astype(np.int32)).long()
    spans = [(data.SHORT_TOKENS, data.SHORT_MAX, move(short_ends)), (data.LONG_TOKENS, data.LONG_MAX, move(long_ends))]
    return wide(ids), wide(targets), move(weights).float(), move(positions).long(), spans


def check_attention(model, device):
    """The fast attention against the plain one; keys and values are repeated where its kernels need that."""
    import torch
    from tools.demo.model import HEAD, KV_HEADS, attend, attend_plain
    if device == "cpu":
        return
    torch.manual_seed(5)
    ends = torch.tensor([0, 70, 200, 512, 512], dtype=torch.int32, device=device)
    heads = model.shape["num_attention_heads"]
    make = lambda h: torch.randn(512, h, HEAD, device=device, dtype=torch.bfloat16, requires_grad=True)
    q, k, v, g = make(heads), make(KV_HEADS), make(KV_HEADS), torch.randn(512, heads, HEAD, device=device).bfloat16()
    want = attend_plain(q, k, v, ends)
    want_grads = torch.autograd.grad(want, (q, k, v), g)
    for expand in (False, True):
        try:
            got = attend(q, k, v, ends, 512, expand)
            grads = torch.autograd.grad(got, (q, k, v), g)
            error = max(((a.float() - b.float()).norm() / b.float().norm()).item()
                        for a, b in zip((got,) + grads, (want,) + want_grads))
        except Exception as problem:   # a build without this kernel
            error = float("inf")
            print("attention:", type(problem).__name__, str(problem)[:200])
        print(f"attention with{'' if expand else 'out'} repeated heads: relative error {error:.1e}", flush=True)
        if error < 2e-2:
            model.expand_heads = expand
            return
    raise SystemExit("no usable attention")


def held_out_loss(model, documents, device):
    """A quick figure for the curve: BF16, documents cut at 2,048 tokens."""
    import torch
    from tools.demo.model import token_losses
    total = count = 0.0
    with torch.no_grad():
        for first in range(0, len(documents), 24):
            part = documents[first:first + 24]
            flat = np.concatenate(part).astype(np.int64)
            lengths = np.array([len(d) for d in part])
            ends = np.cumsum(np.append(0, lengths)).astype(np.int32)
            move = lambda a: torch.from_numpy(a).to(device)
            positions = np.concatenate([np.arange(n) for n in lengths])
            x = model.hidden_states(move(flat), move(positions), [(len(flat), 2048, move(ends))], plain=True)
            targets = np.roll(flat, -1)
            use = targets < len(model.embedding) - 1
            use[ends[1:] - 1] = False
            loss = token_losses(x, model.final_norm, model.embedding, move(targets), model.shared_bias)
            keep = move(use)
            total += loss[keep].double().sum().item()
            count += keep.sum().item()
    return total / count


def save(model, used, path, note):
    """Snapshot on the grid; exponents that are not fixed yet are chosen for the snapshot only."""
    import torch
    fixed = dict(model.exponents)
    if not fixed:
        model.fix_exponents(note.pop("steps_per_sigma"))
        model.publish()
    export.pack(model, used, path, {"format": FORMAT, **{k: str(v) for k, v in note.items()}})
    model.exponents = fixed
    if not fixed:
        model.publish()


def train(args):
    import torch
    from tools.demo.model import Demo, Optimizer, load_shape, schedule
    begun = time.time()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    os.makedirs(args.out, exist_ok=True)
    used = np.load(os.path.join(args.data, "used.npy"))
    workers = args.workers or max(1, (os.cpu_count() or 2) - 2)
    total = args.steps or 10**9
    loader = data.Loader(args.data, args.seed, workers, int(total * 0.6))   # forks before CUDA starts
    held = data.cut(data.load_xz(os.path.join(args.data, "heldout.xz")), np.zeros(len(used) + 1, bool), 2048)
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    model = Demo(load_shape(args.shape), len(used) + 1, device, torch.bfloat16 if device == "cuda" else torch.float32)
    model.connect_gradients()
    body = sum(t.numel() for n, t in model.master.items() if n != "embedding")
    print(f"{body} parameters beside {len(used) + 1} rows; corpus {loader.corpus_tokens} tokens; {workers} workers; "
          f"started in {time.time() - begun:.1f} s", flush=True)
    check_attention(model, device)
    loss_of = model.loss
    if device == "cuda":
        for layer in model.layers:
            layer.compile(fullgraph=True, dynamic=False)
        import tools.demo.model as module
        fused = torch.compile(module.token_loss, fullgraph=True, dynamic=False)
        loss_of = lambda x, t, w: fused(x, model.final_norm, model.embedding, t, w, model.shared_bias)
    optimizer = Optimizer(model, args.muon_rate, args.adam_rate, args.decay, use_muon=not args.adam)
    log = open(os.path.join(args.out, "log.jsonl"), "w")
    step, mark, waited = 0, None, 0.0
    recent = torch.zeros(2, device=device)
    snapping = False
    while step < total:
        if not snapping and step >= total * (1 - args.snap_share):
            model.fix_exponents(args.steps_per_sigma)
            model.publish()
            snapping = True
            print(f"step {step}: weights on the grid from here", flush=True)
        asked = time.time()
        batch = loader.get(step)
        waited += time.time() - asked
        ids, targets, weights, positions, spans = to_device(batch, device)
        loss, answers = loss_of(model.hidden_states(ids, positions, spans), targets, weights)
        loss.backward()
        optimizer.step(schedule(step, total, args.warm))
        recent += torch.stack([loss.detach(), answers])
        step += 1
        if step == 40:   # compiled and warm
            torch.cuda.synchronize() if device == "cuda" else None
            mark = time.time()
            print(f"warm after {mark - begun:.1f} s", flush=True)
        if args.seconds and step == 240:
            # The length of the run follows from its speed; nothing before the cool-down depends on it.
            torch.cuda.synchronize() if device == "cuda" else None
            rate = 200 / (time.time() - mark)
            total = step + int((args.seconds - (time.time() - begun)) * rate * 0.985)
            with loader.cool_from.get_lock():
                loader.cool_from.value = int(total * 0.6)
            print(f"{rate:.2f} steps/s: {total} steps in all", flush=True)
        if step % args.log_every == 0 or step == total:
            value, answer = (recent / args.log_every).tolist()
            recent.zero_()
            line = {"step": step, "loss": round(value, 4), "recall": round(answer, 4), "seconds": round(time.time() - begun, 1), "waited": round(waited, 1)}
            if mark and step > 40:
                line["tokens_per_second"] = int((step - 40) * data.BATCH_TOKENS / (time.time() - mark))
            if step % (args.log_every * 10) == 0 or step == total:
                line["held_out"] = held_out_loss(model, held, device)
            print(json.dumps(line), flush=True)
            log.write(json.dumps(line) + "\n")
            log.flush()
        if args.save_every and step % args.save_every == 0 or step == total:
            note = {"steps": step, "of": total, "tokens": step * data.BATCH_TOKENS, "seed": args.seed,
                    "steps_per_sigma": args.steps_per_sigma}
            save(model, used, os.path.join(args.out, "saving.bin"), note)
            os.replace(os.path.join(args.out, "saving.bin"), os.path.join(args.out, "kipp-demo.bin"))
    loader.close()
    with open(os.path.join(args.out, "done"), "w") as f:
        f.write(f"{time.time() - begun:.1f}\n")
    print(f"done in {time.time() - begun:.1f} s; entropy of the codes "
          f"{export.entropy_bytes(os.path.join(args.out, 'kipp-demo.bin'))} bytes", flush=True)


def finish(args):
    import torch
    from tools.demo import evaluate
    os.makedirs(args.out, exist_ok=True)
    checkpoint = os.path.join(args.run, "kipp-demo.bin")
    export.split(checkpoint, args.out)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    evaluate.evaluate(checkpoint, args.data, os.path.join(args.out, "figures.json"), args.tests, device)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("prepare", help="tokenize the corpus and choose the vocabulary")
    p.add_argument("--corpus", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--prose-ease", type=float, default=82.0)
    p.add_argument("--min-count", type=int, default=8)
    p.add_argument("--min-generated", type=int, default=1)
    p.add_argument("--sample", type=int, default=8000, help="generated documents that the vocabulary is taken from")
    p = commands.add_parser("train", help="train and snap")
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--shape")
    p.add_argument("--steps", type=int)
    p.add_argument("--seconds", type=float, help="choose the number of steps from the speed")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--workers", type=int)
    p.add_argument("--warm", type=int, default=200)
    p.add_argument("--muon-rate", type=float, default=8e-3)
    p.add_argument("--adam-rate", type=float, default=3e-3)
    p.add_argument("--decay", type=float, default=0.1)
    p.add_argument("--adam", action="store_true", help="AdamW for everything")
    p.add_argument("--snap-share", type=float, default=0.25)
    p.add_argument("--steps-per-sigma", type=float, default=12.0)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--save-every", type=int, default=0)
    p = commands.add_parser("finish", help="measure the checkpoint of a run")
    p.add_argument("--data", required=True)
    p.add_argument("--run", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--tests", type=int, default=200)
    args = parser.parse_args()
    {"prepare": data.prepare, "train": train, "finish": finish}[args.command](args)


if __name__ == "__main__":
    main()
