"""Daily snowpack stability over the facets of a mountain range.

Terrain facets are joined to their nearest neighbours in space; a small graph
network maps the day's weather on each facet to a stability index.
"""
import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GraphConv

NAME = "pyg_avalanche_slopes"
FACETS = 20480
WEATHER = 24
HIDDEN = 96
NEIGHBOURS = 10
DAYS = 32
BANDWIDTH = 0.35
WARMUP = 20
BLOCKS = 10
PER_BLOCK = 10


def make_terrain(facets, generator, device):
    """Facet centres in kilometres: two ridges with rough ground between."""
    xy = torch.rand(facets, 2, generator=generator, device=device) * 24.0
    ridge = torch.exp(-((xy[:, 0] - 8.0) / 3.0) ** 2) + 0.7 * torch.exp(-((xy[:, 1] - 15.0) / 2.5) ** 2)
    rough = torch.randn(facets, generator=generator, device=device) * 0.05
    height = 1.2 + 1.6 * ridge + rough
    return torch.cat([xy, height.unsqueeze(1)], dim=1)


def make_season(pos, days, generator, device):
    """Weather on each facet for each day and the index observed there."""
    weather = torch.randn(days, pos.size(0), WEATHER, generator=generator, device=device)
    weather[:, :, 0] += pos[:, 2]
    weather[:, :, 1] += torch.sin(pos[:, 0] / 24.0 * 2.0 * math.pi)
    mix = torch.randn(WEATHER, generator=generator, device=device) / math.sqrt(WEATHER)
    index = torch.tanh(weather @ mix + 0.3 * pos[:, 2] - 0.5)
    noise = torch.randn(index.shape, generator=generator, device=device)
    return weather, index + 0.05 * noise


def neighbour_graph(pos, k, bandwidth):
    """Directed edges from the k nearest facets, weighted by distance."""
    dist = torch.cdist(pos, pos)
    dist.fill_diagonal_(float("inf"))
    near, source = dist.topk(k, dim=1, largest=False)
    weight = torch.softmax(-(near / bandwidth) ** 2, dim=1)
    target = torch.arange(pos.size(0), device=pos.device).unsqueeze(1).expand(-1, k)
    edge_index = torch.stack([source.reshape(-1), target.reshape(-1)])
    return edge_index, weight.reshape(-1)


class StabilityNet(nn.Module):
    def __init__(self, weather, hidden):
        super().__init__()
        self.inlet = nn.Linear(weather + 3, hidden)
        self.conv1 = GraphConv(hidden, hidden, aggr="add")
        self.conv2 = GraphConv(hidden, hidden, aggr="add")
        self.outlet = nn.Linear(hidden, 1)

    def forward(self, weather, pos, edge_index, weight):
        h = F.relu(self.inlet(torch.cat([weather, pos / 10.0], dim=1)))
        h = F.relu(self.conv1(h, edge_index, weight))
        h = F.relu(self.conv2(h, edge_index, weight))
        return self.outlet(h).squeeze(1)


def main():
    torch.manual_seed(41)
    device = torch.device("cuda")
    generator = torch.Generator(device=device).manual_seed(7)
    pos = make_terrain(FACETS, generator, device)
    weather, index = make_season(pos, DAYS, generator, device)
    edge_index, weight = neighbour_graph(pos, NEIGHBOURS, BANDWIDTH)

    model = StabilityNet(WEATHER, HIDDEN).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    losses = []

    def train_day(n):
        day = n % DAYS
        prediction = model(weather[day], pos, edge_index, weight)
        loss = F.mse_loss(prediction, index[day])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    steps = 0
    for _ in range(WARMUP):
        train_day(steps)
        steps += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            train_day(steps)
            steps += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    curve = torch.stack(losses).cpu()
    result = [float(curve[:10].mean()), float(curve[-10:].mean())]
    times.sort()
    print(json.dumps({"program": NAME, "steps": steps, "us": times[len(times) // 2], "result": result}))


if __name__ == "__main__":
    main()
