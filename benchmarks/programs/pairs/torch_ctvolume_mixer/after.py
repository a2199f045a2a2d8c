"""Axial mixing network that scores CT sub-volumes for follow-up reading.

Every block mixes the volume along depth, height and width with one dense
matrix per axis, then mixes the channels with a small bottleneck.
"""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_ctvolume_mixer"
BATCH = 2
SIDE = 64
CHANNELS = 64
BLOCKS = 6
WARMUP = 6
BLOCKS_TIMED = 6
STEPS_PER_BLOCK = 5


class AxisMix(nn.Module):
    """Dense mixing along one spatial axis of a (B, D, H, W, C) volume."""

    def __init__(self, axis, side):
        super().__init__()
        self.axis = axis
        self.weight = nn.Parameter(torch.randn(side, side) * side ** -0.5)

    def forward(self, x):
        # leave the axis where it is: (before, axis, after) as a batch of products
        lines = x.reshape(x.shape[:self.axis].numel(), x.shape[self.axis], -1)
        weight = self.weight.expand(lines.shape[0], -1, -1)
        return torch.bmm(weight, lines).view(x.shape)


class ChannelMix(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down = nn.Linear(channels, channels // 2)
        self.up = nn.Linear(channels // 2, channels)

    def forward(self, x):
        return self.up(F.gelu(self.down(x)))


class Block(nn.Module):
    def __init__(self, side, channels):
        super().__init__()
        self.depth = AxisMix(1, side)
        self.height = AxisMix(2, side)
        self.width = AxisMix(3, side)
        self.channel = ChannelMix(channels)

    def forward(self, x):
        x = x + self.depth(x)
        x = x + self.height(x)
        x = x + self.width(x)
        return x + self.channel(x)


class VolumeMixer(nn.Module):
    def __init__(self, side, channels, blocks):
        super().__init__()
        self.stem = nn.Linear(1, channels)
        self.blocks = nn.ModuleList([Block(side, channels) for _ in range(blocks)])
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, 2)

    def forward(self, volume):
        x = self.stem(volume.unsqueeze(-1))
        for block in self.blocks:
            x = block(x)
        pooled = self.norm(x.mean(dim=(1, 2, 3)))
        return self.head(pooled).float()


def synthetic_volumes(count, generator, device):
    """Smooth blobs on noise, in the range of soft tissue after windowing."""
    grid = torch.linspace(-1.0, 1.0, SIDE, device=device)
    z, y, x = torch.meshgrid(grid, grid, grid, indexing="ij")
    volumes = []
    for _ in range(count * BATCH):
        c = torch.rand(3, generator=generator, device=device) - 0.5
        r2 = (z - c[0]) ** 2 + (y - c[1]) ** 2 + (x - c[2]) ** 2
        noise = torch.randn(r2.shape, generator=generator, device=device)
        volumes.append(torch.exp(-6.0 * r2) + 0.1 * noise)
    return torch.stack(volumes).view(count, BATCH, SIDE, SIDE, SIDE).to(torch.bfloat16)


@torch.inference_mode()
def score(model, volume):
    return model(volume)


def main():
    device = torch.device("cuda")
    torch.manual_seed(11)
    generator = torch.Generator(device=device).manual_seed(5)
    model = VolumeMixer(SIDE, CHANNELS, BLOCKS).to(device, torch.bfloat16).eval()
    volumes = synthetic_volumes(4, generator, device)

    for i in range(WARMUP):
        score(model, volumes[i % len(volumes)])
    torch.cuda.synchronize()

    times = []
    steps = WARMUP
    for _ in range(BLOCKS_TIMED):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            logits = score(model, volumes[steps % len(volumes)])
            steps += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK * 1e6)

    # summed magnitude over all volumes, so that single logits near zero do not matter
    total = sum(score(model, v).abs().sum().item() for v in volumes)
    print(json.dumps({
        "program": NAME,
        "steps": steps,
        "us": statistics.median(times),
        "result": [total],
    }))


if __name__ == "__main__":
    main()
