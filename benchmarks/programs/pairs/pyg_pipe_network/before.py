"""Burst localisation in a water distribution network from pressure and flow records."""
import json
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

SEED = 2291
DEVICE = torch.device("cuda")
JUNCTIONS = 100_000
CROSS_LINKS = 250_000
RECORD = 256
HIDDEN = 64
DAYS = 6
WARMUP = 60
BLOCKS = 10
PER_BLOCK = 10


def make_pipes(rng):
    """Street mains in a chain of junctions, with cross links to nearby streets."""
    mains = np.stack([np.arange(JUNCTIONS - 1), np.arange(1, JUNCTIONS)])
    start = rng.integers(0, JUNCTIONS, CROSS_LINKS)
    reach = rng.integers(2, 3000, CROSS_LINKS)
    links = np.stack([start, (start + reach) % JUNCTIONS])
    pipes = np.concatenate([mains, links], axis=1)
    both = np.concatenate([pipes, pipes[::-1]], axis=1)
    order = np.lexsort((both[0], both[1]))
    return torch.from_numpy(np.ascontiguousarray(both[:, order]).astype(np.int64))


def make_days():
    """One graph a day: a record of quarter-hour readings at every junction."""
    rng = np.random.default_rng(SEED)
    pipes = make_pipes(rng)
    profile = torch.from_numpy(np.sin(np.linspace(0.0, 12.0, RECORD)).astype(np.float32))
    generator = torch.Generator().manual_seed(SEED)
    days = []
    for _ in range(DAYS):
        demand = torch.rand(JUNCTIONS, 1, generator=generator)
        record = torch.randn(JUNCTIONS, RECORD, generator=generator)
        leak = torch.from_numpy((rng.random(JUNCTIONS) < 0.08).astype(np.int64))
        record.mul_(0.5).addcmul_(demand, profile.unsqueeze(0))
        record[:, RECORD // 2:] -= 0.15 * leak.unsqueeze(1).float()
        days.append(Data(x=record, edge_index=pipes.clone(), y=leak))
    return days


class BurstNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(RECORD, HIDDEN)
        self.near = SAGEConv(HIDDEN, HIDDEN)
        self.far = SAGEConv(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, 2)

    def forward(self, x, edge_index):
        h = F.relu(self.encode(x))
        h = h + F.relu(self.near(h, edge_index))
        h = h + F.relu(self.far(h, edge_index))
        return self.head(h)


class Trainer:
    def __init__(self, days):
        torch.manual_seed(SEED)
        self.days = days
        self.model = BurstNet().to(DEVICE)
        self.weight = torch.tensor([1.0, 6.0], device=DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-4, fused=True)
        self.steps = 0
        self.loss = None

    def step(self):
        day = self.days[self.steps % len(self.days)]
        logits = self.model(day.x.to(DEVICE), day.edge_index.to(DEVICE))
        loss = F.cross_entropy(logits, day.y.to(DEVICE), weight=self.weight)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.detach()
        self.steps += 1


def main():
    days = make_days()
    trainer = Trainer(days)

    for _ in range(WARMUP):
        trainer.step()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            trainer.step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    norm = sum(p.detach().double().pow(2).sum() for p in trainer.model.parameters()).sqrt().item()
    print(json.dumps({
        "program": "pyg_pipe_network",
        "steps": trainer.steps,
        "us": float(np.median(times)),
        "result": [trainer.loss.item(), norm],
    }))


if __name__ == "__main__":
    main()
