"""Crowding nowcast on the stops of a national transit network.

New passenger counts arrive at every tick; the hidden state of each stop is
diffused along the timetable links, updated by a gate and decoded to crowding.
"""
import json
import time

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

NAME = "pyg_transit_stops"
STOPS = 160_000
LINKS = 3_200_000
COUNTS = 16
HIDDEN = 128
HOPS = 3
TICKS = 8
WARMUP = 30
BLOCKS = 8
BLOCK_STEPS = 5


def make_network(device):
    gen = torch.Generator(device=device).manual_seed(1863)
    source = torch.randint(0, STOPS, (LINKS,), generator=gen, device=device)
    hop = torch.randint(1, 4000, (LINKS,), generator=gen, device=device)
    hub = torch.randint(0, STOPS, (LINKS,), generator=gen, device=device)
    near = torch.rand(LINKS, generator=gen, device=device) < 0.6
    target = torch.where(near, (source + hop) % STOPS, hub)
    riders = 0.2 + torch.rand(LINKS, generator=gen, device=device)
    total = torch.zeros(STOPS, device=device).index_add_(0, target, riders)
    share = riders / total.clamp(min=1e-6)[target]
    counts = torch.randn(TICKS, STOPS, COUNTS, generator=gen, device=device)
    return Data(edge_index=torch.stack([source, target]), edge_weight=share,
                num_nodes=STOPS), counts


class Diffusion(MessagePassing):
    """Share-weighted inflow from the upstream stops."""

    def __init__(self):
        super().__init__(aggr="add")

    def forward(self, x, edge_index, share):
        return self.propagate(edge_index, x=x, share=share)

    def message(self, x_j, share):
        return share.view(-1, 1) * x_j


class Nowcast(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(COUNTS, HIDDEN)
        self.diffuse = Diffusion()
        self.hops = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(HOPS))
        self.decode = nn.Linear(HIDDEN, 1)

    def forward(self, state, counts, network):
        x = self.encode(counts).add_(state)
        for hop in self.hops:
            inflow = self.diffuse(x, network.edge_index, network.edge_weight)
            x = torch.relu(hop(inflow)).add_(x)
        state = torch.tanh(x).mul_(0.8)
        return state, self.decode(state)


@torch.no_grad()
def main():
    torch.manual_seed(12)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    network, counts = make_network(device)
    model = Nowcast().to(device).eval()
    state = torch.zeros(STOPS, HIDDEN, device=device)
    busiest = torch.zeros((), device=device)
    crowding = None

    def tick(i, state):
        state, crowding = model(state, counts[i % TICKS], network)
        torch.maximum(busiest, crowding.max(), out=busiest)
        return state, crowding

    for i in range(WARMUP):
        state, crowding = tick(i, state)
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for i in range(BLOCK_STEPS):
            state, crowding = tick(i, state)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS)

    times.sort()
    median = 0.5 * (times[(len(times) - 1) // 2] + times[len(times) // 2])
    result = [crowding.std().item(), busiest.item(), state.norm().item(), state.abs().mean().item()]
    print(json.dumps({"program": NAME, "steps": BLOCKS * BLOCK_STEPS,
                      "us": median * 1e6, "result": result}))


if __name__ == "__main__":
    main()
