"""Nitrate in the reaches of a river network: a graph network over all
reaches, trained on monthly snapshots of land use, weather and discharge."""
import copy
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

PROGRAM = "pyg_river_reaches"
REACHES, ATTRIBUTES, HIDDEN = 120_000, 192, 96
MONTHS = 4
WARMUP, BLOCKS, BLOCK = 6, 6, 5
SEED = 33


def river_network(gen):
    """A random forest of reaches that drain to reaches of lower number;
    messages go down and up the stream."""
    upstream = torch.arange(1, REACHES)
    reach = torch.randint(1, 200, (REACHES - 1,), generator=gen)
    downstream = (upstream - reach).clamp_min(0)
    down = torch.stack([upstream, downstream])
    return torch.cat([down, down.flip(0)], dim=1).contiguous()


def monthly_snapshots(gen):
    """One graph a month: the network is shared, attributes and samples differ."""
    edge_index = river_network(gen)
    catchment = torch.randn(REACHES, ATTRIBUTES, generator=gen)
    snapshots = []
    for month in range(MONTHS):
        season = torch.randn(ATTRIBUTES, generator=gen) * 0.5
        x = catchment * (1 + 0.2 * month) + season
        nitrate = x[:, :8].sum(1) * 0.3 + 0.1 * torch.randn(REACHES, generator=gen)
        weight = (torch.rand(REACHES, generator=gen) < 0.3).float()
        snapshots.append(Data(x=x, edge_index=edge_index, y=nitrate, weight=weight))
    return snapshots


class ReachNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(ATTRIBUTES, HIDDEN)
        self.near = SAGEConv(HIDDEN, HIDDEN)
        self.far = SAGEConv(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, x, edge_index):
        h = F.relu(self.embed(x))
        h = h + F.relu(self.near(h, edge_index))
        h = h + F.relu(self.far(h, edge_index))
        return self.head(h).squeeze(1)


class Trainer:
    def __init__(self, model, device, steps):
        self.model, self.device = model, device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
        self.losses = torch.zeros(steps, device=device)
        self.count = 0

    def step(self, snapshot):
        graph = copy.copy(snapshot).to(self.device)
        predicted = self.model(graph.x, graph.edge_index)
        error = (predicted - graph.y).square() * graph.weight
        loss = error.sum() / graph.weight.sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.losses[self.count] = loss.detach()
        self.count += 1


def main():
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    gen = torch.Generator().manual_seed(SEED)
    device = torch.device("cuda")
    snapshots = monthly_snapshots(gen)
    steps = WARMUP + BLOCKS * BLOCK
    trainer = Trainer(ReachNet().to(device), device, steps)

    for k in range(WARMUP):
        trainer.step(snapshots[k % MONTHS])
    torch.cuda.synchronize()
    times = []
    for b in range(BLOCKS):
        begin = time.perf_counter()
        for k in range(BLOCK):
            trainer.step(snapshots[(WARMUP + b * BLOCK + k) % MONTHS])
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / BLOCK)

    losses = trainer.losses.cpu()
    print(f"{snapshots[0].num_edges} edges, loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(json.dumps({"program": PROGRAM, "steps": steps, "us": statistics.median(times) * 1e6,
                      "result": [float(losses[0]), float(losses.mean())]}))


if __name__ == "__main__":
    main()
