"""Classification of infrasound events from array telegrams.

Stations send their eight microphones as telegrams of 12-bit samples, two
samples in three bytes.  A convolutional network learns to tell explosions,
bolides, surf, storms and noise apart from whole records.
"""
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RECORDS = 64
MICROPHONES = 8
SAMPLES = 8192
CLASSES = 5
BATCHES = 12
OFFSET = 2048
PASCAL_PER_COUNT = 0.002
WARMUP = 8
BLOCK = 5
BLOCKS = 8


def pack_samples(counts):
    """Telegram bytes of 12-bit counts (last axis even)."""
    pairs = counts.astype(np.uint16).reshape(*counts.shape[:-1], -1, 2)
    first, second = pairs[..., 0], pairs[..., 1]
    packed = np.empty(pairs.shape[:-1] + (3,), np.uint8)
    packed[..., 0] = first & 0xFF
    packed[..., 1] = (first >> 8) | ((second & 0x0F) << 4)
    packed[..., 2] = second >> 4
    return packed.reshape(*counts.shape[:-1], -1)


def make_telegrams(rng):
    """One batch of packed records and their classes."""
    labels = rng.integers(0, CLASSES, RECORDS)
    seconds = np.arange(SAMPLES, dtype=np.float32) / 100.0
    rate = (0.3 + 0.5 * labels + 0.2 * rng.random(RECORDS)).astype(np.float32)
    onset = rng.uniform(10.0, 60.0, RECORDS).astype(np.float32)
    envelope = np.exp(-((seconds[None, :] - onset[:, None]) / 8.0) ** 2)
    signal = 60.0 * envelope * np.sin(2.0 * np.pi * rate[:, None] * seconds[None, :])
    noise = 150.0 * rng.standard_normal((RECORDS, MICROPHONES, SAMPLES), dtype=np.float32)
    counts = np.clip(np.rint(noise + signal[:, None, :]) + OFFSET, 0, 4095)
    return pack_samples(counts), labels


def unpack_samples(packed):
    """Counts of a telegram, the reverse of pack_samples."""
    triplets = packed.reshape(*packed.shape[:-1], -1, 3).astype(np.int32)
    first = triplets[..., 0] | ((triplets[..., 1] & 0x0F) << 8)
    second = (triplets[..., 1] >> 4) | (triplets[..., 2] << 4)
    return np.stack([first, second], axis=-1).reshape(*packed.shape[:-1], -1)


def to_waves(packed, device):
    """Standardised pressure records on the device."""
    pressure = (unpack_samples(packed) - OFFSET).astype(np.float32) * np.float32(PASCAL_PER_COUNT)
    pressure = pressure - pressure.mean(axis=-1, keepdims=True)
    scale = np.sqrt((pressure * pressure).mean(axis=-1, keepdims=True))
    return torch.from_numpy(pressure / (scale + np.float32(1e-6))).to(device)


class InfrasoundNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [128, 256, 384, 512]
        self.stem = nn.Conv1d(MICROPHONES, widths[0], 16, stride=4, padding=6)
        self.convs = nn.ModuleList(
            nn.Conv1d(a, b, 9, stride=2, padding=4) for a, b in zip(widths[:-1], widths[1:])
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(w) for w in widths)
        self.head = nn.Linear(widths[-1], CLASSES)

    def forward(self, waves):
        x = F.relu(self.norms[0](self.stem(waves)))
        for conv, norm in zip(self.convs, self.norms[1:]):
            x = F.relu(norm(conv(x)))
        return self.head(x.mean(dim=-1))


def main():
    torch.manual_seed(12)
    device = torch.device("cuda", 0)
    rng = np.random.default_rng(12)
    telegrams = []
    for _ in range(BATCHES):
        packed, labels = make_telegrams(rng)
        telegrams.append((packed, torch.from_numpy(labels).to(device)))
    model = InfrasoundNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=1e-2, fused=True)
    losses = []

    def train_step(number):
        packed, labels = telegrams[number % BATCHES]
        waves = to_waves(packed, device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(waves)
        loss = F.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    for number in range(WARMUP):
        train_step(number)
    torch.cuda.synchronize()

    times = []
    number = WARMUP
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            train_step(number)
            number += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK * 1e6)

    with torch.no_grad():
        waves = to_waves(telegrams[0][0], device)
        checksum = waves[:, :, ::7].double().abs().mean().item()
        weights = sum(p.double().pow(2).sum().item() for p in model.parameters()) ** 0.5
    print(json.dumps({
        "program": "torch_infrasound", "steps": number,
        "us": statistics.median(times),
        "result": [torch.stack(losses).mean().item(), weights, checksum],
    }))


if __name__ == "__main__":
    main()
