"""Plots of docs/DEMO.md from the training log and the figures.

    python3 tools/demo/plots.py docs/plots/demo_log.jsonl docs/plots/demo_figures.json docs/plots
"""

import json
import os
import sys


def main(log, figures, out):
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "kipp"   # the same input gives the same file
    import matplotlib.pyplot as plt
    with open(log) as f:
        lines = [json.loads(line) for line in f]
    lines = [line for line in lines if line["step"] % 25 == 0]
    steps = [line["step"] for line in lines]
    fig, ax = plt.subplots(figsize=(6.4, 3.6))
    ax.plot(steps, [line["loss"] for line in lines], label="training, all weighted tokens", linewidth=1.2)
    ax.plot(steps, [max(line["recall"], 1e-4) for line in lines], label="recall answers", linewidth=1.2)
    held = [line for line in lines if "held_out" in line]
    ax.plot([line["step"] for line in held], [line["held_out"] for line in held], "o-", markersize=3,
            label="held-out works", linewidth=1.2)
    ax.set_yscale("log")
    ax.set_xlabel("step (131,072 tokens each)")
    ax.set_ylabel("nats per token")
    ax.grid(True, which="major", alpha=0.3)
    ax.legend(frameon=False, fontsize=8)
    fig.tight_layout()
    fig.savefig(os.path.join(out, "demo_loss.svg"), metadata={"Date": None})
    with open(figures) as f:
        recall = json.load(f)["recall"]
    fig, ax = plt.subplots(figsize=(6.4, 3.0))
    names = list(recall)
    for shift, kind in enumerate(("plain list", "plain story", "chat list", "chat story")):
        ax.bar([i + (shift - 1.5) * 0.2 for i in range(len(names))], [100 * recall[n][kind] for n in names], 0.19,
               label=kind)
    ax.set_xticks(range(len(names)), names)
    ax.set_xlabel("distance in tokens")
    ax.set_ylabel("right answers, %")
    ax.set_ylim(0, 105)
    ax.legend(frameon=False, fontsize=8, ncol=4, loc="lower center")
    fig.tight_layout()
    fig.savefig(os.path.join(out, "demo_recall.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:4])
