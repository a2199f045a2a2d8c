"""Arrhythmia classifier on scalograms of two-lead Holter recordings (synthetic)."""
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

FS = 250
CROP = 2048
BANDS = 48
HOP = 16
CLASSES = 5
BATCH = 64
WARMUP, BLOCKS, PER_BLOCK = 24, 5, 8
STEPS = WARMUP + BLOCKS * PER_BLOCK


def morlet_bank(n, bands, lo=0.7, hi=60.0, width=6.0):
    """Frequency responses of analytic Morlet filters, log-spaced."""
    freqs = np.fft.fftfreq(n, 1.0 / FS)
    centres = np.geomspace(lo, hi, bands)
    bank = np.exp(-0.5 * (width * (freqs[None, :] / centres[:, None] - 1.0)) ** 2)
    bank[:, freqs < 0] = 0.0
    return (2.0 * bank).astype(np.float32)


def synth_records(count, length, seed=11):
    rng = np.random.default_rng(seed)
    t = np.arange(length, dtype=np.float32) / FS
    labels = rng.integers(0, CLASSES, count)
    sig = 0.15 * rng.standard_normal((count, 2, length), dtype=np.float32)
    for i in range(count):
        rate = 0.9 + 0.35 * labels[i] + 0.05 * rng.standard_normal()
        phase = (t * rate + rng.random()) % 1.0
        beat = np.exp(-0.5 * ((phase - 0.5) / 0.02) ** 2)
        twave = 0.3 * np.exp(-0.5 * ((phase - 0.75) / 0.05) ** 2)
        sig[i, 0] += beat + twave
        sig[i, 1] += 0.6 * beat - twave
        sig[i] += 0.4 * np.sin(2 * np.pi * 0.2 * t + i)          # baseline wander
    return sig, labels


class HolterDataset(Dataset):
    def __init__(self, records, labels, length):
        self.records, self.labels, self.length = records, labels, length
        self.bank = morlet_bank(CROP, BANDS)
        self.span = records.shape[2] - CROP

    def __len__(self):
        return self.length

    def __getitem__(self, idx):
        rec = idx % len(self.records)
        start = (idx * 7919) % self.span
        x = self.records[rec, :, start:start + CROP]
        x = x - x.mean(axis=1, keepdims=True)
        spec = np.fft.fft(x, axis=1).astype(np.complex64)
        coeff = np.fft.ifft(spec[:, None, :] * self.bank[None], axis=2)
        mag = np.abs(coeff).astype(np.float32)
        mag = mag.reshape(2, BANDS, CROP // HOP, HOP).mean(axis=3)
        return torch.from_numpy(np.log1p(10.0 * mag)), int(self.labels[rec])


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)), inplace=True)


class ScalogramNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(Block(2, 64), Block(64, 128), Block(128, 256))
        self.head = nn.Linear(256, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean(dim=(2, 3)))


def main():
    torch.manual_seed(3)
    torch.backends.cudnn.benchmark = True
    records, labels = synth_records(192, 4 * CROP)
    loader = DataLoader(
        HolterDataset(records, labels, STEPS * BATCH),
        batch_size=BATCH, shuffle=False, drop_last=True,
        num_workers=8, prefetch_factor=2, persistent_workers=True, pin_memory=True)
    batches = iter(loader)

    dev = torch.device("cuda")
    net = ScalogramNet().to(dev, memory_format=torch.channels_last)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=True)
    total = torch.zeros((), device=dev)
    level = torch.zeros((), device=dev)

    def train_step():
        feats, target = next(batches)
        feats = feats.to(dev, non_blocking=True)
        target = target.to(dev, non_blocking=True)
        level.add_(feats.mean())
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = net(feats.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits, target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total.add_(loss.detach())

    for _ in range(WARMUP):
        train_step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        t0 = time.perf_counter()
        for _ in range(PER_BLOCK):
            train_step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - t0) / PER_BLOCK)
    us = 1e6 * sorted(times)[len(times) // 2]
    print(json.dumps({"program": "torch_ecg_scalogram", "steps": STEPS, "us": round(us, 1),
                      "result": [float(level) / STEPS, float(total) / STEPS]}))


if __name__ == "__main__":
    main()
