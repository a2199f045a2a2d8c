"""Counts barnacles on shore photographs with a density network.

Annotators mark each animal by a point; the network learns the density map whose integral is the count.
"""
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

PROGRAM = "torch_barnacle_density"
PHOTOS = 192
SIZE = 512
GRID = 128
MARKS = 12
RADIUS = 12
SIGMA = 4.0
WIDTH = 128
RESIDUAL_BLOCKS = 12
BATCH = 16
WARMUP = 20
BLOCKS = 8
PER_BLOCK = 8


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x):
        inner = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(inner)) + x, inplace=True)


class DensityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 8, stride=4, padding=2)
        self.body = nn.Sequential(*[Residual(WIDTH) for _ in range(RESIDUAL_BLOCKS)])
        self.head = nn.Conv2d(WIDTH, 1, 1)

    def forward(self, photos):
        return self.head(self.body(self.stem(photos))).squeeze(1)


class Shore:
    """Photographs on the device and the annotated points in grid coordinates."""

    def __init__(self, device, seed):
        generator = torch.Generator(device=device).manual_seed(seed)
        self.device = device
        self.photos = torch.randint(0, 256, (PHOTOS, 3, SIZE, SIZE), dtype=torch.uint8, device=device, generator=generator)
        self.photos = self.photos.contiguous(memory_format=torch.channels_last)
        self.cells = torch.arange(GRID, dtype=torch.float32, device=device)
        self.rng = np.random.default_rng(seed)
        self.marks = self.rng.uniform(0.0, GRID - 1.0, (PHOTOS, MARKS, 2)).astype(np.float32)

    def bells(self, centres):
        offset = (self.cells - centres.round().unsqueeze(-1)).abs()
        bell = torch.exp(-((self.cells - centres.unsqueeze(-1)) ** 2) / (2 * SIGMA ** 2))
        bell = bell * (offset <= RADIUS)
        return bell / bell.sum(dim=-1, keepdim=True)

    def density(self, marks):
        marks = torch.from_numpy(marks).to(self.device)
        bell_y = self.bells(marks[:, :, 0])
        bell_x = self.bells(marks[:, :, 1])
        return torch.bmm(bell_y.transpose(1, 2), bell_x)

    def batch(self):
        chosen = self.rng.integers(0, PHOTOS, BATCH)
        mirrored = bool(self.rng.integers(0, 2))
        photos = self.photos[torch.from_numpy(chosen).to(self.device)]
        marks = self.marks[chosen].copy()
        if mirrored:
            photos = photos.flip(-1)
            marks[:, :, 1] = GRID - 1.0 - marks[:, :, 1]
        density = self.density(marks)
        photos = photos.to(torch.bfloat16).div_(255.0).contiguous(memory_format=torch.channels_last)
        return photos, density


class Trainer:
    def __init__(self):
        self.device = torch.device("cuda")
        torch.manual_seed(8)
        self.shore = Shore(self.device, 8)
        self.net = DensityNet().to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)
        self.best = float("inf")

    def step(self):
        photos, density = self.shore.batch()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            predicted = self.net(photos)
        loss = F.mse_loss(predicted.float(), density * 100.0)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        value = loss.item()
        self.best = min(self.best, value)
        return value


def main():
    torch.backends.cudnn.benchmark = True
    trainer = Trainer()
    losses = [trainer.step() for _ in range(WARMUP)]
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            losses.append(trainer.step())
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    result = [float(np.mean(losses[:20])), float(np.mean(losses[-20:]))]
    print(json.dumps({"program": PROGRAM, "steps": len(losses), "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
