"""Peak overflow volume of urban sewer catchments from their pipe graphs.

Nodes are manholes (depth, inflow, ground level, ...), edges are pipes.  A graph
isomorphism network embeds the manholes; an attention read-out weights them per
catchment, and a small head predicts the logarithm of the overflow volume.
"""
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv
from torch_geometric.utils import scatter, softmax

CATCHMENTS = 36
BATCHES = 6
FEATURES = 16
HIDDEN = 256
LAYERS = 4
WARMUP = 60
BLOCKS = 10
STEPS_PER_BLOCK = 10


def make_catchment(rng):
    manholes = int(rng.integers(450, 750))
    x = rng.standard_normal((manholes, FEATURES)).astype(np.float32)
    child = np.arange(1, manholes)
    parent = np.maximum(child - rng.integers(1, 12, manholes - 1), 0)
    loops = rng.integers(0, manholes, (2, manholes // 3))
    src = np.concatenate([child, parent, loops[0], loops[1]])
    dst = np.concatenate([parent, child, loops[1], loops[0]])
    load = x[:, 0] * np.maximum(x[:, 1], 0.0) + 0.5 * np.abs(x[:, 2])
    volume = np.log1p(np.maximum(load, 0.0).mean() * 10.0)
    return Data(x=torch.from_numpy(x),
                edge_index=torch.from_numpy(np.stack([src, dst]).astype(np.int64)),
                y=torch.tensor([volume], dtype=torch.float32))


def make_batches(seed, device):
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(BATCHES):
        batch = Batch.from_data_list([make_catchment(rng) for _ in range(CATCHMENTS)])
        sizes = (batch.ptr[1:] - batch.ptr[:-1]).tolist()
        batches.append((batch.to(device), sizes))
    return batches


class CatchmentReadout(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 1))
        self.value = nn.Linear(width, width)

    def forward(self, h, batch, sizes):
        gate = self.gate(h)
        value = self.value(h)
        weight = softmax(gate, batch, num_nodes=len(sizes))
        return scatter(weight * value, batch, dim=0, dim_size=len(sizes), reduce="sum")


class OverflowNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(FEATURES, HIDDEN)
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        for _ in range(LAYERS):
            mlp = nn.Sequential(nn.Linear(HIDDEN, 2 * HIDDEN), nn.ReLU(),
                                nn.Linear(2 * HIDDEN, HIDDEN))
            self.convs.append(GINConv(mlp))
            self.norms.append(nn.LayerNorm(HIDDEN))
        self.readout = CatchmentReadout(HIDDEN)
        self.head = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, batch, sizes):
        h = self.embed(batch.x)
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.relu(norm(conv(h, batch.edge_index)))
        pooled = self.readout(h, batch.batch, sizes)
        return self.head(pooled).squeeze(-1)


def main():
    torch.manual_seed(1871)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    batches = make_batches(1871, device)
    model = OverflowNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2.0e-4, fused=True)

    step = 0
    losses = []

    def train(count):
        nonlocal step
        for _ in range(count):
            batch, sizes = batches[step % BATCHES]
            optimizer.zero_grad(set_to_none=True)
            loss = F.smooth_l1_loss(model(batch, sizes), batch.y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            step += 1

    train(WARMUP)
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        train(STEPS_PER_BLOCK)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    history = torch.stack(losses).double()
    with torch.no_grad():
        norm = torch.sqrt(sum(p.double().square().sum() for p in model.parameters()))
    result = [float(history[0]), float(norm)]
    print("mean loss of the first and last round",
          float(history[:BATCHES].mean()), float(history[-BATCHES:].mean()))
    print(json.dumps({"program": "pyg_sewer_overflow", "steps": step,
                      "us": float(np.median(times) * 1e6), "result": result}))


if __name__ == "__main__":
    main()
