"""The demo model, its optimizer and the grid its weights live on.

Every 2-D weight is q * 2^e with |q| <= 127 and one e a row once snapping is on,
so BF16 holds it exactly and the codes compress to their entropy.
"""

import json
import math
import os

import torch
import torch.nn.functional as F

VOCABULARY = 151936
KV_HEADS, HEAD = 8, 128
EPS, THETA = 1e-6, 1e6


def load_shape(path=None):
    with open(path or os.path.join(os.path.dirname(os.path.abspath(__file__)), "shape.json")) as f:
        return json.load(f)


# ---------------------------------------------------------------- forward pass

def rms_norm(x, weight):
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + EPS)).to(x.dtype) * weight


def rope_tables(length, device):
    inverse = THETA ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * inverse
    return angles.cos().float().to(device), angles.sin().float().to(device)


def rotate(x, cos, sin):
    """NeoX half-split rotation of [tokens, heads, HEAD]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def attend_plain(q, k, v, ends):
    """Per-document attention without special kernels: the check of the fast path, and the CPU's way."""
    out = torch.empty_like(q)
    group = q.shape[1] // k.shape[1]
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist()):
        if end > start:
            parts = [t[start:end].transpose(0, 1)[None] for t in (q, k, v)]
            parts[1:] = [t.repeat_interleave(group, 1) for t in parts[1:]]
            out[start:end] = F.scaled_dot_product_attention(*parts, is_causal=True)[0].transpose(0, 1)
    return out


def attend(q, k, v, ends, limit, expand):
    if not q.is_cuda or q.dtype == torch.float32:
        return attend_plain(q, k, v, ends)
    from torch.nn.attention.varlen import varlen_attn
    if expand:   # for kernels without grouped heads
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return varlen_attn(q, k, v, ends, ends, limit, limit, window_size=(-1, 0))


class Layer(torch.nn.Module):
    """Parameters are BF16 views into stacked tensors that the optimizer writes."""

    def __init__(self, views):
        super().__init__()
        for name, tensor in views.items():
            setattr(self, name, torch.nn.Parameter(tensor))

    def forward(self, x, cos, sin, spans, expand):
        tokens = x.shape[0]
        h = rms_norm(x, self.input_norm)
        q = (h @ self.q.T).view(tokens, -1, HEAD)
        k = (h @ self.k.T).view(tokens, KV_HEADS, HEAD)
        v = (h @ self.v.T).view(tokens, KV_HEADS, HEAD)
        q = rotate(rms_norm(q, self.q_norm), cos, sin)
        k = rotate(rms_norm(k, self.k_norm), cos, sin)
        sizes = [size for size, _, _ in spans]
        outs = [attend(*part, ends, limit, expand)
                for part, (_, limit, ends) in zip(zip(q.split(sizes), k.split(sizes), v.split(sizes)), spans)]
        mixed = torch.cat(outs) if len(outs) > 1 else outs[0]
        x = x + mixed.reshape(tokens, -1) @ self.o.T
        h = rms_norm(x, self.post_norm)
        return x + (F.silu(h @ self.gate.T) * (h @ self.up.T)) @ self.down.T


MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
NORMS = ("input_norm", "post_norm", "q_norm", "k_norm")


def matrix_shapes(shape):
    hidden, ffn, wide = shape["hidden_size"], shape["intermediate_size"], shape["num_attention_heads"] * HEAD
    narrow = KV_HEADS * HEAD
    return {"q": (wide, hidden), "k": (narrow, hidden), "v": (narrow, hidden), "o": (hidden, wide),
            "gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}


class Demo(torch.nn.Module):
    """Qwen3 over a compact vocabulary whose last row stands for every unused id."""

    def __init__(self, shape, rows, device, dtype=torch.bfloat16):
        super().__init__()
        self.shape, self.rows = shape, rows
        layers, hidden = shape["num_hidden_layers"], shape["hidden_size"]
        self.master, self.live = {}, {}
        for name, (m, n) in matrix_shapes(shape).items():
            std = n ** -0.5 * (0.5 if name in ("o", "down") else 1.0)
            self.master[name] = torch.randn(layers, m, n, device=device) * std
        for name in NORMS:
            self.master[name] = torch.ones(layers, HEAD if name in ("q_norm", "k_norm") else hidden, device=device)
        self.master["embedding"] = torch.randn(rows, hidden, device=device) * 0.05
        self.master["final_norm"] = torch.ones(hidden, device=device)
        for name, tensor in self.master.items():
            self.live[name] = tensor.to(dtype)
        self.layers = torch.nn.ModuleList(
            Layer({name: self.live[name][i] for name in MATRICES + NORMS}) for i in range(layers))
        self.embedding = torch.nn.Parameter(self.live["embedding"])
        self.final_norm = torch.nn.Parameter(self.live["final_norm"])
        self.cos, self.sin = rope_tables(shape["max_position_embeddings"], device)
        self.shared_bias = math.log(VOCABULARY - rows + 1)   # the last column counts for that many tokens
        self.expand_heads = False
        self.exponents = {}

    def connect_gradients(self):
        """Gradients of a stack's layers are views of one tensor."""
        self.gradients = {name: torch.zeros_like(t) for name, t in self.live.items()}
        for i, layer in enumerate(self.layers):
            for name in MATRICES + NORMS:
                getattr(layer, name).grad = self.gradients[name][i]
        self.embedding.grad = self.gradients["embedding"]
        self.final_norm.grad = self.gradients["final_norm"]

    def hidden_states(self, ids, positions, spans, plain=False):
        """plain: not through the compiled layers, whose shapes are those of training."""
        x = F.embedding(ids, self.embedding)
        cos, sin = self.cos[positions][:, None, :], self.sin[positions][:, None, :]
        for layer in self.layers:
            x = (layer.forward if plain else layer)(x, cos, sin, spans, self.expand_heads)
        return x

    def loss(self, x, targets, weights):
        return token_loss(x, self.final_norm, self.embedding, targets, weights, self.shared_bias)

    @torch.no_grad()
    def publish(self):
        """Writes the master weights, snapped where exponents are set, into the live ones."""
        for name, tensor in self.master.items():
            if name in self.exponents:
                step = torch.exp2(self.exponents[name].float())
                self.live[name].copy_((tensor / step).round_().clamp_(-127, 127).mul_(step))
            else:
                self.live[name].copy_(tensor.bfloat16())   # exact in BF16 on every device

    @torch.no_grad()
    def fix_exponents(self, steps_per_sigma):
        """One power of two a row from its RMS: entropy coding makes outliers cheap, so none is clipped hard."""
        for name in MATRICES + ("embedding",):
            w = self.master[name]
            spread = w.pow(2).mean(-1, keepdim=True).sqrt().clamp_min(1e-8)
            need = w.abs().amax(-1, keepdim=True).clamp_min(1e-8) / 127
            e = torch.maximum((spread / steps_per_sigma).log2().round(), need.log2().ceil())
            self.exponents[name] = e.clamp(-40, 20)

    @torch.no_grad()
    def codes(self, name):
        e = self.exponents[name]
        q = (self.live[name].float() / torch.exp2(e.float())).round()
        assert q.abs().max() <= 127
        return q.to(torch.int8), e.squeeze(-1).to(torch.int8)


def token_losses(x, norm, embedding, targets, shared_bias):
    logits = rms_norm(x, norm) @ embedding.T
    bias = torch.zeros(embedding.shape[0], device=x.device)
    bias[-1] = shared_bias
    return F.cross_entropy(logits.float() + bias, targets, reduction="none")


def token_loss(x, norm, embedding, targets, weights, shared_bias):
    """The weighted mean, and for the log that of the recall answers (weight 2)."""
    losses = token_losses(x, norm, embedding, targets, shared_bias)
    answers = (weights > 1.5).float()
    return (losses * weights).sum() / weights.sum(), ((losses * answers).sum() / answers.sum()).detach()


# ---------------------------------------------------------------- optimizer

def orthogonalize(g, rounds=5):
    """Newton-Schulz towards the nearest orthogonal matrices of a stack [n, small, large]."""
    x = g.bfloat16()
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).bfloat16()
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(rounds):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Optimizer:
    """Muon for the layers' matrices, AdamW for the embedding and the norms."""

    def __init__(self, model, muon_rate=4e-3, adam_rate=2e-3, decay=0.1, use_muon=True):
        self.model, self.use_muon = model, use_muon
        self.muon_rate, self.adam_rate, self.decay = muon_rate, adam_rate, decay
        self.momentum = {n: torch.zeros_like(model.master[n]) for n in MATRICES} if use_muon else {}
        self.adam = {n: (torch.zeros_like(t), torch.zeros_like(t)) for n, t in model.master.items()
                     if not (use_muon and n in MATRICES)}
        self.steps = 0

    @torch.no_grad()
    def step(self, scale):
        self.steps += 1
        model = self.model
        if self.use_muon:
            self._muon(scale)
        b1, b2 = 0.9, 0.98
        for name, (m, v) in self.adam.items():
            g = model.gradients[name].float()
            m.lerp_(g, 1 - b1)
            v.lerp_(g * g, 1 - b2)
            update = (m / (1 - b1 ** self.steps)) / ((v / (1 - b2 ** self.steps)).sqrt() + 1e-10)
            rate = self.adam_rate * scale
            if name in MATRICES:
                model.master[name].mul_(1 - rate * self.decay)
            elif name == "embedding":
                model.master[name].mul_(1 - rate * 0.02)
            model.master[name].add_(update, alpha=-rate)
        for g in model.gradients.values():
            g.zero_()
        model.publish()

    def _muon(self, scale):
        model, hidden = self.model, self.model.shape["hidden_size"]
        groups = {}
        for name in MATRICES:
            g, m = model.gradients[name].float(), self.momentum[name]
            m.lerp_(g, 0.05)
            update = g.lerp(m, 0.95)
            wide = update if update.shape[-2] == hidden and name in ("o", "down") else update.mT
            groups.setdefault(tuple(wide.shape[-2:]), []).append((name, wide))
        rate = self.muon_rate * scale
        for (rows, columns), members in groups.items():
            done = orthogonalize(torch.cat([w for _, w in members]))
            for (name, _), u in zip(members, done.split(members[0][1].shape[0])):
                u = (u if name in ("o", "down") else u.mT).float()
                w = model.master[name]
                w.mul_(1 - rate * self.decay)
                # 0.2 sqrt(longer side) gives an update the size that AdamW's usually have.
                w.add_(u, alpha=-rate * 0.2 * math.sqrt(max(rows, columns)))


def schedule(step, total, warm=200, cool=0.4):
    """Linear warm-up, plateau, linear cool-down over the last 40 %."""
    return min(1.0, (step + 1) / warm, (total - step) / (total * cool))
