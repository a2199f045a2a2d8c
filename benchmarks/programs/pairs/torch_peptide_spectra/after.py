#!/usr/bin/env python
"""Peptide property prediction from tandem mass spectra.

Each MS2 scan is a set of (m/z, intensity) peaks.  A set transformer without
positions encodes the peaks; masked mean pooling gives an embedding from which
retention time and collision cross-section are regressed.
"""
import json
import math
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MAX_PEAKS = 448          # centroiding keeps at most this many peaks in a scan
N_SCANS = 4096
BATCH = 128
DIM, HEADS, LAYERS = 512, 8, 4
WARM, STEPS, CHUNK = 6, 30, 5
DTYPE = torch.bfloat16


def synthesize(rng):
    """Tryptic peptides: the number of peaks grows with the peptide's length."""
    scans, labels = [], []
    for _ in range(N_SCANS):
        residues = rng.integers(7, 31)
        n = int(min(2 * residues + rng.integers(10, 60), 120))
        mz = np.sort(rng.uniform(100.0, 1800.0, n)).astype(np.float32)
        inten = rng.gamma(0.7, 1.0, n).astype(np.float32)
        scans.append(np.stack([mz, inten / inten.max()], 1))
        labels.append((residues / 30.0, float((mz * inten).sum() / inten.sum()) / 1000.0))
    return scans, np.asarray(labels, dtype=np.float32)


def collate(scans):
    """Stack scans of different lengths; returns peaks and their validity."""
    width = min(MAX_PEAKS, -(-max(map(len, scans)) // 8) * 8)
    peaks = np.zeros((len(scans), width, 2), dtype=np.float32)
    valid = np.zeros((len(scans), width), dtype=bool)
    for row, scan in enumerate(scans):
        peaks[row, :len(scan)] = scan
        valid[row, :len(scan)] = True
    return torch.from_numpy(peaks), torch.from_numpy(valid)


class PeakEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        wave = torch.logspace(-3, math.log10(2000.0), DIM // 2)
        self.register_buffer("omega", 2 * math.pi / wave)
        self.mix = nn.Linear(DIM + 1, DIM)

    def forward(self, peaks):
        arg = peaks[..., :1] * self.omega
        feats = torch.cat([arg.sin(), arg.cos(), peaks[..., 1:].sqrt()], -1)
        return self.mix(feats.to(self.mix.weight.dtype))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x, mask):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(a.transpose(1, 2).reshape(b, n, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class SpectrumRegressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = PeakEmbedding()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, 2)

    def forward(self, peaks, valid):
        x = self.embed(peaks)
        mask = valid[:, None, None, :].expand(-1, 1, valid.shape[1], -1)
        for layer in self.layers:
            x = layer(x, mask)
        w = valid.unsqueeze(-1).to(x.dtype)
        pooled = (self.norm(x) * w).sum(1, dtype=torch.float32) / w.sum(1, dtype=torch.float32)
        return self.head(pooled.to(x.dtype)).float()


def main():
    rng = np.random.default_rng(404)
    torch.manual_seed(404)
    dev = torch.device("cuda")
    scans, labels = synthesize(rng)
    labels = torch.from_numpy(labels).to(dev)
    order = rng.permutation(N_SCANS)
    loader = []
    for lo in range(0, N_SCANS, BATCH):
        idx = order[lo:lo + BATCH]
        peaks, valid = collate([scans[i] for i in idx])
        loader.append((peaks.to(dev), valid.to(dev), labels[torch.from_numpy(idx).to(dev)]))

    net = SpectrumRegressor().to(dev)
    net.to(DTYPE)
    net.embed.omega = net.embed.omega.float()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    track = []

    def one(step):
        peaks, valid, y = loader[step % len(loader)]
        loss = F.mse_loss(net(peaks, valid), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        track.append(loss.detach())

    for s in range(WARM):
        one(s)
    torch.cuda.synchronize()
    per_step = []
    for c in range(STEPS // CHUNK):
        tic = time.perf_counter()
        for s in range(CHUNK):
            one(WARM + c * CHUNK + s)
        torch.cuda.synchronize()
        per_step.append((time.perf_counter() - tic) / CHUNK * 1e6)
    history = torch.stack(track).cpu()
    out = {"program": "torch_peptide_spectra", "steps": WARM + STEPS,
           "us": statistics.median(per_step),
           "result": [history[0].item(), history[:18].mean().item()]}
    print(json.dumps(out))


if __name__ == "__main__":
    main()
