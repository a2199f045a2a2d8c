"""Forecast coral larvae settlement on a reef connectivity graph with GraphSAGE.

Reef cells are nodes; an edge carries larvae from a source cell to a cell down
the current. Every snapshot gives each cell a spectrum of 384 water and habitat
descriptors (fresh sensor noise each time), and the target is the settlement
density on the day after.
"""
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv, SimpleConv

CELLS = 80_000
IN_EDGES = 20
DESCRIPTORS = 384
HIDDEN = 32
device = torch.device("cuda")


def reef_graph(generator):
    """Each cell receives from IN_EDGES cells, mostly near along the coast, some far away."""
    target = torch.arange(CELLS, device=device).repeat_interleave(IN_EDGES)
    hop = torch.randn(CELLS * IN_EDGES, device=device, generator=generator) * 4000
    source = (target + hop.round().long()) % CELLS
    order = torch.randperm(CELLS * IN_EDGES, device=device, generator=generator)
    return torch.stack([source, target])[:, order].contiguous()


def reef_data(generator):
    descriptors = torch.randn(CELLS, DESCRIPTORS, device=device, generator=generator)
    edge_index = reef_graph(generator)
    habitat = torch.randn(DESCRIPTORS, device=device, generator=generator) / DESCRIPTORS ** 0.5
    quality = descriptors @ habitat
    supply = torch.zeros(CELLS, device=device)
    supply.index_add_(0, edge_index[1], quality[edge_index[0]])
    settle = torch.sigmoid(2 * supply / IN_EDGES ** 0.5 + quality)
    return Data(x=descriptors, edge_index=edge_index, y=settle)


class SettlementNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.arrive = SAGEConv(DESCRIPTORS, HIDDEN, aggr="mean")
        self.mean = SimpleConv(aggr="mean")
        self.spread = SAGEConv(HIDDEN, HIDDEN, aggr="mean")
        self.out = torch.nn.Linear(HIDDEN, 1)

    def forward(self, x, edge_index):
        # project first, the mean over the neighbours commutes with the linear map
        received = self.mean(self.arrive.lin_l(x), edge_index)
        h = F.relu(received + self.arrive.lin_r(x))
        h = h + F.relu(self.spread(h, edge_index))
        return self.out(h).squeeze(-1)


def main():
    torch.manual_seed(17)
    generator = torch.Generator(device=device).manual_seed(18)
    data = reef_data(generator)
    model = SettlementNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    losses = []

    def train_step():
        noise = torch.randn(data.x.shape, device=device, generator=generator)
        snapshot = torch.add(data.x, noise, alpha=0.1)
        optimizer.zero_grad()
        prediction = model(snapshot, data.edge_index)
        loss = F.binary_cross_entropy_with_logits(prediction, data.y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    def block(n):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        for _ in range(n):
            train_step()
        torch.cuda.synchronize()
        return (time.perf_counter() - t0) / n * 1e6

    block(8)
    spans = [block(5) for _ in range(6)]

    curve = torch.stack(losses)
    print(json.dumps({
        "program": "pyg_larvae",
        "steps": len(losses),
        "us": statistics.median(spans),
        "result": [curve[0].item(), curve.mean().item(), curve[-1].item()],
    }))


if __name__ == "__main__":
    main()
