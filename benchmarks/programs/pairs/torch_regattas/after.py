"""Handicap estimation for sailing regattas.

A small network maps boat + skipper + wind conditions to a speed score; race
results are modelled with the Plackett-Luce likelihood of the finishing order.
Entries of a race are stored from the last finisher to the first one, so that
the denominator of every place is a running log-sum-exp.
"""
import json
import random
import time

import torch
from torch import nn

BOATS, SKIPPERS = 600, 2500
RACES_PER_BATCH = 96
N_BATCHES = 5
WARMUP, BLOCKS, PER_BLOCK = 5, 7, 3


class SpeedNet(nn.Module):
    def __init__(self, dim=64, weather=6, hidden=256):
        super().__init__()
        self.boat = nn.Embedding(BOATS, dim)
        self.skipper = nn.Embedding(SKIPPERS, dim)
        self.body = nn.Sequential(
            nn.Linear(2 * dim + weather, hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), nn.SiLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, boat, skipper, weather):
        z = torch.cat([self.boat(boat), self.skipper(skipper), weather], dim=1)
        return self.body(z).squeeze(1)


class RaceBatch:
    """Entries of many races laid end to end, with the size of each fleet."""

    def __init__(self, rng, device):
        self.sizes = [rng.randint(8, 30) for _ in range(RACES_PER_BATCH)]
        n = sum(self.sizes)
        g = torch.Generator().manual_seed(rng.randrange(1 << 30))
        boat = torch.randint(BOATS, (n,), generator=g)
        skipper = torch.randint(SKIPPERS, (n,), generator=g)
        per_race = torch.randn(len(self.sizes), 6, generator=g)
        weather = per_race.repeat_interleave(torch.tensor(self.sizes), dim=0)
        # hidden truth: newer boats (high number) sail faster
        strength = boat.float() / BOATS + 0.3 * torch.randn(n, generator=g)
        order = []
        start = 0
        for size in self.sizes:
            order.append(start + torch.argsort(strength[start:start + size]))
            start += size
        order = torch.cat(order)
        self.boat = boat[order].to(device)
        self.skipper = skipper[order].to(device)
        self.weather = weather.to(device)
        # padded positions of each fleet, built once
        longest = max(self.sizes)
        slots = torch.zeros(len(self.sizes), longest, dtype=torch.long)
        valid = torch.zeros(len(self.sizes), longest)
        start = 0
        for row, size in enumerate(self.sizes):
            slots[row, :size] = torch.arange(start, start + size)
            valid[row, :size] = 1.0 / size
            start += size
        self.slots = slots.to(device)
        self.valid = valid.to(device)


def batch_nll(net, batch):
    """Mean negative log-likelihood of the finishing orders, all races at once."""
    scores = net(batch.boat, batch.skipper, batch.weather)[batch.slots]
    denom = torch.logcumsumexp(scores, dim=1)
    return ((denom - scores) * batch.valid).sum() / len(batch.sizes)


class Fitter:
    def __init__(self, net, lr=1e-3):
        self.net = net
        self.opt = torch.optim.AdamW(net.parameters(), lr=lr, fused=True)
        self.steps = 0
        self.loss_sum = torch.zeros((), device="cuda")

    def step(self, batch):
        loss = batch_nll(self.net, batch)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.loss_sum += loss.detach()
        self.steps += 1


def main():
    torch.manual_seed(29)
    rng = random.Random(29)
    device = torch.device("cuda")
    batches = [RaceBatch(rng, device) for _ in range(N_BATCHES)]
    fitter = Fitter(SpeedNet().to(device))

    for i in range(WARMUP):
        fitter.step(batches[i % N_BATCHES])
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(PER_BLOCK):
            fitter.step(batches[fitter.steps % N_BATCHES])
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / PER_BLOCK)

    times.sort()
    mean_nll = (fitter.loss_sum / fitter.steps).item()
    weight = fitter.net.body[0].weight.norm().item()
    print(json.dumps({"program": "torch_regattas", "steps": fitter.steps,
                      "us": 1e6 * times[len(times) // 2],
                      "result": [mean_nll, weight]}))


if __name__ == "__main__":
    main()
