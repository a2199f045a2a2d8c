"""Pick P and S arrivals in continuous seismograms with a bidirectional transformer.

A day of three-component records of a station network is held on the GPU; windows
are cut into patches and scored, and the best pick of each phase is kept.
"""
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

RATE = 100
PATCH = 16
TOKENS = 512                       # 81.92 s a window
WINDOW = PATCH * TOKENS
DIM, HEADS, DEPTH, FF = 1024, 16, 10, 4096
BATCH = 48
WINDOWS = 4 * BATCH
WARMUP, BLOCKS, PER_BLOCK = 6, 5, 6


class EncoderWeights(nn.Module):
    """One pre-norm layer; the projections back to the residual have no bias."""

    def __init__(self):
        super().__init__()
        self.g1 = nn.Parameter(torch.ones(DIM))
        self.b1 = nn.Parameter(torch.zeros(DIM))
        self.g2 = nn.Parameter(torch.ones(DIM))
        self.b2 = nn.Parameter(torch.zeros(DIM))
        self.qkv_w = nn.Parameter(torch.randn(3 * DIM, DIM) * DIM ** -0.5)
        self.qkv_b = nn.Parameter(torch.zeros(3 * DIM))
        self.out_w = nn.Parameter(torch.randn(DIM, DIM) * 0.3 * DIM ** -0.5)
        self.up_w = nn.Parameter(torch.randn(FF, DIM) * DIM ** -0.5)
        self.up_b = nn.Parameter(torch.zeros(FF))
        self.down_w = nn.Parameter(torch.randn(DIM, FF) * 0.3 * FF ** -0.5)

    def forward(self, x, batch):
        """x: (batch * TOKENS, DIM), the residual stream, updated in place."""
        h = F.layer_norm(x, (DIM,), self.g1, self.b1)
        qkv = torch.addmm(self.qkv_b, h, self.qkv_w.t())
        q, k, v = qkv.view(batch, TOKENS, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        y = y.transpose(1, 2).reshape(batch * TOKENS, DIM)
        x.addmm_(y, self.out_w.t())
        h = F.layer_norm(x, (DIM,), self.g2, self.b2)
        h = torch._addmm_activation(self.up_b, h, self.up_w.t(), use_gelu=True)
        x.addmm_(h, self.down_w.t())
        return x


class PhasePicker(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(3 * PATCH, DIM)
        self.pos = nn.Parameter(0.1 * torch.randn(TOKENS, DIM))
        self.layers = nn.ModuleList(EncoderWeights() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, 3 * PATCH)      # noise, P, S for each sample

    def forward(self, waves):
        b = waves.shape[0]
        tokens = waves.view(b, 3, TOKENS, PATCH).permute(0, 2, 1, 3).reshape(b, TOKENS, 3 * PATCH)
        x = (self.patch(tokens) + self.pos).view(b * TOKENS, DIM)
        for layer in self.layers:
            x = layer(x, b)
        logits = self.head(self.norm(x)).view(b, WINDOW, 3)
        return logits.float().softmax(dim=2)


def synth_archive(dev, seed=31):
    """Windows with one event each: emergent P, stronger S, coloured noise."""
    g = torch.Generator(device=dev).manual_seed(seed)
    t = torch.arange(WINDOW, device=dev) / RATE
    onset_p = 10 + 30 * torch.rand(WINDOWS, 1, 1, device=dev, generator=g)
    onset_s = onset_p + 3 + 15 * torch.rand(WINDOWS, 1, 1, device=dev, generator=g)
    gain = torch.rand(WINDOWS, 3, 1, device=dev, generator=g) + 0.2
    tp, ts = (t - onset_p).clamp(min=0), (t - onset_s).clamp(min=0)
    waves = gain * tp * torch.exp(-0.8 * tp) * torch.sin(50 * tp)
    waves += 2 * gain.flip(1) * ts * torch.exp(-0.4 * ts) * torch.sin(25 * ts)
    waves += 0.05 * torch.randn(WINDOWS, 3, WINDOW, device=dev, generator=g)
    waves /= waves.std(dim=2, keepdim=True)
    return waves.to(torch.bfloat16)


def main():
    torch.manual_seed(9)
    dev = torch.device("cuda")
    with dev:
        picker = PhasePicker().to(torch.bfloat16).eval()
    archive = synth_archive(dev)
    picks = torch.zeros(WINDOWS, 2, dtype=torch.int64, device=dev)
    score = torch.zeros(WINDOWS, 2, device=dev)

    @torch.inference_mode()
    def pick_batch(i):
        lo = (i * BATCH) % WINDOWS
        prob = picker(archive[lo:lo + BATCH])
        best, at = prob[:, :, 1:].max(dim=1)
        picks[lo:lo + BATCH] = at
        score[lo:lo + BATCH] = best

    step = 0
    for _ in range(WARMUP):
        pick_batch(step)
        step += 1
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        t0 = time.perf_counter()
        for _ in range(PER_BLOCK):
            pick_batch(step)
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - t0) / PER_BLOCK)
    us = 1e6 * sorted(times)[len(times) // 2]
    print(json.dumps({"program": "torch_seismic_phasepicker", "steps": step, "us": round(us, 1),
                      "result": [float(score.mean()), float(score.std())]}))


if __name__ == "__main__":
    main()
