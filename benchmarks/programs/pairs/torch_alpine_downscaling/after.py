"""Downscaling of coarse weather fields to an alpine grid.

A convolutional network receives the interpolated coarse fields of a few days
together with static surface rasters (terrain, slope, aspect, land cover) and is
trained on fine temperature and precipitation fields.
"""
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FINE = 768
RATIO = 8
COARSE = FINE // RATIO
DAYS = 16
BATCH = 4
COARSE_FIELDS = 8
RASTERS = 24
TARGETS = 2
WIDTH = 64
WARMUP = 12
BLOCKS = 8
STEPS_PER_BLOCK = 5
DEVICE = torch.device("cuda")


def surface_rasters(generator):
    levels = []
    for size in (6, 24, 96, 384):
        noise = torch.randn(1, RASTERS, size, size, generator=generator)
        levels.append(F.interpolate(noise, size=(FINE, FINE), mode="bilinear", align_corners=False)
                      / math.sqrt(size))
    rasters = torch.stack(levels).sum(dim=0)
    rasters = rasters - rasters.mean(dim=(2, 3), keepdim=True)
    rasters = rasters / rasters.std(dim=(2, 3), keepdim=True)
    return rasters.contiguous(memory_format=torch.channels_last)


def coarse_days(generator):
    seeds = torch.randn(DAYS, COARSE_FIELDS, 12, 12, generator=generator)
    fields = F.interpolate(seeds, size=(COARSE, COARSE), mode="bicubic", align_corners=False)
    return fields.contiguous(memory_format=torch.channels_last)


def fine_days(coarse, rasters):
    fields = []
    for day in range(DAYS):
        up = F.interpolate(coarse[day:day + 1], scale_factor=RATIO, mode="bilinear",
                           align_corners=False)
        temperature = up[:, 0] - 0.8 * rasters[:, 0] + 0.2 * up[:, 1] * rasters[:, 3]
        rain = F.softplus(up[:, 2] + 0.5 * rasters[:, 1] * up[:, 4])
        fields.append(torch.stack((temperature, rain), dim=1))
    return torch.cat(fields).contiguous(memory_format=torch.channels_last)


class ResidualPair(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.second(F.relu(self.first(x), inplace=True))


class Downscaler(nn.Module):
    def __init__(self):
        super().__init__()
        self.weather = nn.Conv2d(COARSE_FIELDS, WIDTH, 3, padding=1)
        self.surface = nn.Conv2d(RASTERS, WIDTH, 3, padding=1)
        self.body = nn.Sequential(*(ResidualPair(WIDTH) for _ in range(3)))
        self.head = nn.Conv2d(WIDTH, TARGETS, 1)

    def forward(self, coarse, rasters):
        up = F.interpolate(coarse, scale_factor=RATIO, mode="bilinear", align_corners=False)
        x = F.relu(self.weather(up) + self.surface(rasters))
        return self.head(self.body(x))


class AlpineArchive:
    def __init__(self, generator):
        self.rasters = surface_rasters(generator).to(DEVICE)
        coarse = coarse_days(generator)
        self.coarse = coarse.to(DEVICE)
        self.fine = fine_days(self.coarse, self.rasters)

    def batch(self, index):
        first = (index * BATCH) % DAYS
        days = slice(first, first + BATCH)
        return self.coarse[days], self.rasters, self.fine[days]


def main():
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(2207)
    generator = torch.Generator().manual_seed(2207)
    archive = AlpineArchive(generator)
    model = Downscaler().to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    running = torch.zeros((), device=DEVICE)

    def step(index):
        coarse, rasters, fine = archive.batch(index)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            predicted = model(coarse, rasters)
        loss = F.mse_loss(predicted.float(), fine)
        loss.backward()
        optimizer.step()
        running.mul_(0.9).add_(loss.detach(), alpha=0.1)

    done = 0
    for _ in range(WARMUP):
        step(done)
        done += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(done)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    norm = math.sqrt(sum(float(p.detach().double().square().sum()) for p in model.parameters()))
    print(json.dumps({"program": "torch_alpine_downscaling", "steps": done,
                      "us": statistics.median(times) * 1e6, "result": [float(running), norm]}))


if __name__ == "__main__":
    main()
