"""Train a small classifier of pavement distress (sound, alligator, longitudinal, pothole, patch).

Tiles come from a road survey catalogue. Rare distress types and recent surveys are drawn more often.
"""
import itertools
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

NAME = "torch_pavement_tiles"
N_TILES = 2_000_000
N_TYPES = 5
TILE = 96
BATCH = 256
WARMUP, BLOCKS, PER_BLOCK = 10, 5, 10


def build_catalogue(seed=11):
    rng = np.random.default_rng(seed)
    kinds = rng.choice(N_TYPES, size=N_TILES, p=[0.86, 0.06, 0.05, 0.01, 0.02]).astype(np.int64)
    age_days = rng.gamma(2.0, 180.0, size=N_TILES)
    mosaic = rng.integers(0, 48, size=N_TILES).astype(np.int32)
    corner = rng.integers(0, 512 - TILE, size=(N_TILES, 2)).astype(np.int32)
    return kinds, age_days, mosaic, corner


class RoadTiles(Dataset):
    """Cuts tiles out of the survey mosaics; distress shows as a brightness pattern of its type."""

    def __init__(self, kinds, mosaic, corner, seed=12):
        rng = np.random.default_rng(seed)
        self.mosaics = rng.integers(60, 180, size=(48, 512, 512), dtype=np.uint8)
        yy, xx = np.mgrid[0:TILE, 0:TILE]
        stamps = [np.zeros((TILE, TILE)), (xx // 8 + yy // 8) % 2, np.abs(xx - 48) < 4,
                  (xx - 48) ** 2 + (yy - 48) ** 2 < 400, (xx > 20) & (xx < 70) & (yy > 30)]
        self.stamps = [(40 * s).astype(np.uint8) for s in stamps]
        self.kinds, self.mosaic, self.corner = kinds, mosaic, corner

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, i):
        y, x = self.corner[i]
        kind = self.kinds[i]
        tile = self.mosaics[self.mosaic[i], y:y + TILE, x:x + TILE] + self.stamps[kind]
        return torch.from_numpy(tile), int(kind)


class RecencyBalancedBatches(Sampler):
    """Endless batches of catalogue rows, balanced over types and tilted towards recent surveys."""

    def __init__(self, kinds, age_days, batch, half_life=365.0, seed=13):
        self.kinds, self.age_days = kinds, age_days
        self.batch, self.half_life = batch, half_life
        self.rng = np.random.default_rng(seed)

    def cumulative_weights(self):
        counts = np.bincount(self.kinds, minlength=N_TYPES)
        per_type = 1.0 / np.sqrt(counts)
        weights = per_type[self.kinds] * np.exp2(-self.age_days / self.half_life)
        return np.cumsum(weights)

    def draw(self):
        cumulative = self.cumulative_weights()
        marks = self.rng.random(self.batch) * cumulative[-1]
        return np.searchsorted(cumulative, marks).tolist()

    def __iter__(self):
        while True:
            yield self.draw()


class Block(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)), inplace=True)


def make_model():
    return nn.Sequential(Block(1, 32), Block(32, 64), Block(64, 128), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(128, N_TYPES))


def train_step(model, opt, batch, device):
    tiles, kinds = batch
    tiles = tiles.to(device, non_blocking=True)
    kinds = kinds.to(device, non_blocking=True)
    x = tiles.unsqueeze(1).float().div_(255.0).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), kinds)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.detach()


def main():
    torch.manual_seed(3)
    device = torch.device("cuda")
    torch.backends.cudnn.benchmark = True
    kinds, age_days, mosaic, corner = build_catalogue()
    loader = DataLoader(RoadTiles(kinds, mosaic, corner),
                        batch_sampler=RecencyBalancedBatches(kinds, age_days, BATCH),
                        num_workers=8, pin_memory=True, prefetch_factor=2)
    batches = iter(loader)
    model = make_model().to(device, memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    for batch in itertools.islice(batches, WARMUP):
        train_step(model, opt, batch, device)
    torch.cuda.synchronize()

    spans, losses = [], []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for batch in itertools.islice(batches, PER_BLOCK):
            losses.append(train_step(model, opt, batch, device))
        torch.cuda.synchronize()
        spans.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    losses = torch.stack(losses).float()
    print(json.dumps({"program": NAME, "steps": WARMUP + BLOCKS * PER_BLOCK, "us": statistics.median(spans),
                      "result": [round(losses[:10].mean().item(), 5), round(losses.mean().item(), 5)]}))


if __name__ == "__main__":
    main()
