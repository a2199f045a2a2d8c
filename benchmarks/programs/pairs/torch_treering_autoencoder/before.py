"""Autoencoder on X-ray density profiles of tree rings.

Each profile is a window of 2048 density samples across the increment core.
The latent codes feed the cross-dating; reconstruction error marks cracks and
missing rings.  Synthetic cores stand in for the collection.
"""
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_treering_autoencoder"
DEVICE = torch.device("cuda")
SAMPLES = 2048
BATCH = 4096
BATCHES = 8
HIDDEN = 1024
LATENT = 64
WARMUP = 8
BLOCKS = 8
PER_BLOCK = 4


class ProfileAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(SAMPLES, HIDDEN), nn.SiLU(),
            nn.Linear(HIDDEN, LATENT),
        )
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, HIDDEN), nn.SiLU(),
            nn.Linear(HIDDEN, SAMPLES),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


def synthetic_cores(count, generator):
    """Ring series: saw-tooth density with a slowly varying ring width."""
    depth = torch.linspace(0, 1, SAMPLES)
    rings = torch.rand(count, 1, generator=generator) * 30 + 10
    drift = torch.rand(count, 1, generator=generator) * 0.4
    phase = torch.rand(count, 1, generator=generator)
    position = rings * (depth + drift * depth * depth) + phase
    density = torch.frac(position).square_()
    density += 0.1 * torch.sin(2 * math.pi * position)
    return density


def load_collection():
    """All windows of the collection, standardised, one tensor."""
    generator = torch.Generator().manual_seed(1887)
    parts = [synthetic_cores(BATCH, generator) for _ in range(BATCHES)]
    collection = torch.cat(parts)
    collection -= collection.mean()
    collection /= collection.std()
    return collection


def train_step(model, optimizer, windows):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        rebuilt = model(windows)
        loss = F.mse_loss(rebuilt.float(), windows)
    loss.backward()
    optimizer.step()
    return loss.detach()


class Epochs:
    """Endless walk over the collection in batches of whole cores."""

    def __init__(self, collection):
        self.collection = collection
        self.position = 0

    def next(self):
        first = self.position * BATCH
        self.position = (self.position + 1) % BATCHES
        batch = self.collection[first:first + BATCH]
        return batch.to(DEVICE)


def main():
    torch.manual_seed(5)
    torch.set_float32_matmul_precision("high")
    collection = load_collection()
    epochs = Epochs(collection)
    model = ProfileAutoencoder().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    steps = 0
    for _ in range(WARMUP):
        first_loss = train_step(model, optimizer, epochs.next())
        steps += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(PER_BLOCK):
            loss = train_step(model, optimizer, epochs.next())
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / PER_BLOCK)
        steps += PER_BLOCK

    print(json.dumps({"program": NAME, "steps": steps,
                      "us": statistics.median(times) * 1e6,
                      "result": [first_loss.item(), loss.item()]}))


if __name__ == "__main__":
    main()
