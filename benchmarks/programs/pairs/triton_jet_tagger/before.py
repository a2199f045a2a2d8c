"""Scoring of particle jets with a deep-set tagger: a network per particle, attention pooling, classifier."""

import json
import statistics
import time

import torch
import triton
import triton.language as tl

DEVICE = "cuda"
JETS = 8192
SLOTS = 256
FEATURES = 32
HIDDEN = 256
CLASSES = 10
BATCHES = 4
WARMUP = 8
BLOCKS = 10
STEPS_PER_BLOCK = 40


@triton.jit
def bias_silu_kernel(x_ptr, bias_ptr, total, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    x = tl.load(x_ptr + i, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(bias_ptr + i % WIDTH).to(tl.float32)
    tl.store(x_ptr + i, (x * tl.sigmoid(x)).to(tl.bfloat16), mask=inside)


@triton.jit
def attention_pool_kernel(
    h_ptr, w_ptr, length_ptr, out_ptr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Softmax over the particles of one jet, and the mean of their features under it, in one pass."""
    jet = tl.program_id(0)
    length = tl.load(length_ptr + jet)
    d = tl.arange(0, WIDTH)
    w = tl.load(w_ptr + d).to(tl.float32)
    acc = tl.zeros([WIDTH], dtype=tl.float32)
    top = -1.0e30
    norm = 0.0
    for first in range(0, SLOTS, BLOCK):
        t = first + tl.arange(0, BLOCK)
        h = tl.load(h_ptr + (jet * SLOTS + t)[:, None] * WIDTH + d[None, :]).to(tl.float32)
        score = tl.sum(h * w[None, :], axis=1)
        score = tl.where(t < length, score, -float("inf"))
        new_top = tl.maximum(top, tl.max(score, axis=0))
        p = tl.exp(score - new_top)
        scale = tl.exp(top - new_top)
        acc = acc * scale + tl.sum(p[:, None] * h, axis=0)
        norm = norm * scale + tl.sum(p, axis=0)
        top = new_top
    tl.store(out_ptr + jet * WIDTH + d, (acc / norm).to(tl.bfloat16))


def bias_silu(x, bias):
    block = 2048
    bias_silu_kernel[(triton.cdiv(x.numel(), block),)](
        x, bias, x.numel(), WIDTH=bias.numel(), BLOCK=block
    )
    return x


def attention_pool(h, w, lengths):
    out = torch.empty(len(lengths), HIDDEN, dtype=torch.bfloat16, device=h.device)
    attention_pool_kernel[(len(lengths),)](h, w, lengths, out, SLOTS=SLOTS, WIDTH=HIDDEN, BLOCK=16)
    return out


class Tagger:
    def __init__(self):
        g = torch.Generator().manual_seed(41)

        def weight(rows, columns):
            w = torch.randn(rows, columns, generator=g) / columns**0.5
            return w.to(DEVICE, torch.bfloat16)

        self.embed, self.embed_bias = weight(HIDDEN, FEATURES), weight(1, HIDDEN)[0]
        self.mix, self.mix_bias = weight(HIDDEN, HIDDEN), weight(1, HIDDEN)[0]
        self.attend = 4 * weight(1, HIDDEN)[0]
        self.head, self.head_bias = weight(HIDDEN, HIDDEN), weight(1, HIDDEN)[0]
        self.classify = 4 * weight(CLASSES, HIDDEN)

    def __call__(self, particles, lengths):
        h = bias_silu(particles.view(-1, FEATURES) @ self.embed.T, self.embed_bias)
        h = bias_silu(h @ self.mix.T, self.mix_bias)
        jets = attention_pool(h, self.attend, lengths)
        jets = bias_silu(jets @ self.head.T, self.head_bias)
        return (jets @ self.classify.T).float()


def collate(particles, lengths):
    """One row of slots for every jet, zeros after its last particle."""
    filled = torch.arange(SLOTS, device=DEVICE)[None, :] < lengths[:, None]
    batch = torch.zeros(len(lengths), SLOTS, FEATURES, dtype=torch.bfloat16, device=DEVICE)
    batch[filled] = particles
    return batch, lengths.int()


def simulate(seed):
    """Jets with their particles one after the other, as the event files hold them."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.exp(3.7 + 0.45 * torch.randn(JETS, generator=g)).int().clamp(5, SLOTS)
    particles = torch.randn(int(lengths.sum()), FEATURES, generator=g).bfloat16()
    return particles.to(DEVICE), lengths.to(DEVICE)


@torch.no_grad()
def main():
    batches = [collate(*simulate(seed)) for seed in range(BATCHES)]
    tagger = Tagger()
    done = 0

    def step():
        nonlocal done
        logits = tagger(*batches[done % BATCHES])
        done += 1
        return logits

    for _ in range(WARMUP):
        logits = step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            logits = step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    us = statistics.median(times) * 1e6
    sure = torch.softmax(logits, dim=1).amax(dim=1)
    print(f"{JETS / us:.2f} M jets/s")
    result = [logits.abs().double().mean().item(), sure.double().mean().item()]
    print(json.dumps({"program": "triton_jet_tagger", "steps": done, "us": us, "result": result}))


if __name__ == "__main__":
    main()
