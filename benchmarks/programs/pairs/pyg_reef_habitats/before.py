"""Habitat classes of reef patches from a graph of neighbouring sonar cells."""
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import LayerNorm
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_undirected

CELLS = 120_000
LINKS = 10
REACH = 400
FEATURES = 128
HIDDEN = 256
HABITATS = 14
HOPS = 3
WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 8


def survey_graph(device):
    """Sonar cells in survey order, each linked with cells of the same part of the track."""
    gen = torch.Generator().manual_seed(17)
    source = torch.arange(CELLS).repeat_interleave(LINKS)
    target = (source + torch.randint(1, REACH, (CELLS * LINKS,), generator=gen)) % CELLS
    edge_index = to_undirected(torch.stack([source, target]).to(device), num_nodes=CELLS)
    stretch = (torch.arange(CELLS) // 700 + torch.randint(0, 2, (CELLS,), generator=gen)) % HABITATS
    centres = torch.randn(HABITATS, FEATURES, generator=gen)
    x = 0.3 * centres[stretch] + torch.randn(CELLS, FEATURES, generator=gen)
    order = torch.randperm(CELLS, generator=gen)
    data = Data(x=x.to(device), y=stretch.to(device), edge_index=edge_index, num_nodes=CELLS)
    data.train_index = order[: CELLS // 2].to(device)
    return data


def normalised_adjacency(data):
    edge_index, weight = gcn_norm(data.edge_index, num_nodes=CELLS, add_self_loops=True,
                                  dtype=torch.float32)
    adjacency = torch.sparse_coo_tensor(edge_index, weight, (CELLS, CELLS)).coalesce()
    return adjacency.to_sparse_csr()


class Diffuse(torch.autograd.Function):
    """Product with the symmetric normalised adjacency."""

    @staticmethod
    def forward(ctx, adjacency, x):
        ctx.adjacency = adjacency
        return adjacency @ x

    @staticmethod
    def backward(ctx, grad):
        return None, ctx.adjacency @ grad.contiguous()


class ReefConv(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = LayerNorm(width, mode="node")

    def forward(self, x, adjacency):
        return x + F.relu(self.norm(Diffuse.apply(adjacency, self.linear(x))))


def hop_features(x, adjacency):
    """Soundings of a cell beside their means over growing neighbourhoods."""
    hops = [x]
    for _ in range(HOPS):
        hops.append(adjacency @ hops[-1])
    return torch.cat(hops, dim=-1)


class HabitatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(FEATURES * (HOPS + 1), HIDDEN)
        self.convs = nn.ModuleList([ReefConv(HIDDEN) for _ in range(2)])
        self.classify = nn.Linear(HIDDEN, HABITATS)

    def forward(self, x, adjacency):
        h = F.relu(self.encode(hop_features(x, adjacency)))
        for conv in self.convs:
            h = conv(h, adjacency)
        return self.classify(h)


def main():
    torch.manual_seed(3)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    data = survey_graph(device)
    adjacency = normalised_adjacency(data)
    labels = data.y[data.train_index]
    model = HabitatNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        logits = model(data.x, adjacency)
        loss = F.cross_entropy(logits[data.train_index], labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(WARMUP):
        loss = train_step()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            loss = train_step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK * 1e6)
    times.sort()
    median = 0.5 * (times[BLOCKS // 2 - 1] + times[BLOCKS // 2])

    weights = float(torch.stack([p.detach().norm() for p in model.parameters()]).norm())
    steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    print(json.dumps({"program": "pyg_reef_habitats", "steps": steps, "us": median,
                      "result": [float(loss), weights]}))


if __name__ == "__main__":
    main()
