"""Salinity maps of an estuary from moored stations.

Station records are encoded, carried to the map cells with anisotropic distance
weights along and across the channel, and decoded to salinity at every cell.
"""
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

STATIONS = 4096
CELLS = 16384
HOURS = 64
WINDOW = 16
VARIABLES = 6
FEATURES = 32
HIDDEN = 512
ALONG_SCALE = 0.08
ACROSS_SCALE = 0.03
CHANNEL_ANGLE = 0.6
WARMUP = 40
BLOCKS = 10
STEPS_PER_BLOCK = 10
DEVICE = torch.device("cuda")


def salinity(place, hours):
    x, y = place[:, 0], place[:, 1]
    tide = torch.sin(2.0 * math.pi * hours / 12.42)[:, None]
    front = torch.sigmoid(6.0 * (x[None] - 0.5 + 0.15 * tide))
    plume = 0.2 * torch.sin(9.0 * y[None] + 4.0 * x[None] + tide)
    return front + plume


def make_archive(generator):
    stations = torch.rand(STATIONS, 2, generator=generator)
    cells = torch.rand(CELLS, 2, generator=generator)
    hours = torch.arange(HOURS, dtype=torch.float32)
    truth = salinity(stations, hours)
    noise = torch.randn(HOURS, STATIONS, VARIABLES, generator=generator)
    scale = torch.linspace(0.3, 1.2, VARIABLES)
    records = truth[:, :, None] * scale + 0.2 * noise
    maps = salinity(cells, hours).t().contiguous()
    return stations, cells, records, maps


class StationWeights(nn.Module):
    def __init__(self, stations, cells):
        super().__init__()
        self.register_buffer("weights", self.distance_weights(stations, cells))

    def channel_frame(self, places):
        c, s = math.cos(CHANNEL_ANGLE), math.sin(CHANNEL_ANGLE)
        along = (places[:, 0] * c + places[:, 1] * s) / ALONG_SCALE
        across = (places[:, 1] * c - places[:, 0] * s) / ACROSS_SCALE
        return along, across

    def distance_weights(self, stations, cells):
        station_along, station_across = self.channel_frame(stations)
        cell_along, cell_across = self.channel_frame(cells)
        along = (cell_along[:, None] - station_along[None, :]).square()
        across = (cell_across[:, None] - station_across[None, :]).square()
        weights = torch.exp(-0.5 * (along + across))
        return weights / weights.sum(dim=1, keepdim=True)

    def forward(self):
        return self.weights


class SalinityMapper(nn.Module):
    def __init__(self, stations, cells):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(VARIABLES, 64), nn.GELU(), nn.Linear(64, FEATURES))
        self.weights = StationWeights(stations, cells)
        self.decoder = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN), nn.GELU(),
            nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
            nn.Linear(HIDDEN, HIDDEN), nn.GELU(),
            nn.Linear(HIDDEN, 1))

    def forward(self, records):
        window = records.shape[0]
        features = self.encoder(records).permute(1, 0, 2).reshape(STATIONS, window * FEATURES)
        carried = self.weights() @ features
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = self.decoder(carried.view(CELLS * window, FEATURES))
        return out.view(CELLS, window)


def main():
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(515)
    generator = torch.Generator().manual_seed(515)
    stations, cells, records, maps = make_archive(generator)
    records = records.to(DEVICE)
    maps = maps.to(DEVICE)
    model = SalinityMapper(stations.to(DEVICE), cells.to(DEVICE)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    running = torch.zeros((), device=DEVICE)

    def step(index):
        first = (4 * index) % (HOURS - WINDOW)
        hours = slice(first, first + WINDOW)
        optimizer.zero_grad(set_to_none=True)
        predicted = model(records[hours])
        loss = F.mse_loss(predicted.float(), maps[:, hours])
        loss.backward()
        optimizer.step()
        running.mul_(0.95).add_(loss.detach(), alpha=0.05)

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
    print(json.dumps({"program": "torch_estuary_salinity", "steps": done,
                      "us": statistics.median(times) * 1e6, "result": [float(running), norm]}))


if __name__ == "__main__":
    main()
