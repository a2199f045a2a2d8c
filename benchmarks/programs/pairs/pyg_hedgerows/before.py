"""Condition of hedgerow segments on a network of field boundaries.

Every segment carries a descriptor from orthophotos; segments that touch are
neighbours. A graph isomorphism network classifies the condition of each
segment from partly surveyed ground truth.
"""
import json
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv

PROGRAM = "pyg_hedgerows"
ROWS = 240
COLUMNS = 250
DESCRIPTOR = 384
HIDDEN = 768
CLASSES = 6
WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 6


def make_network():
    rng = np.random.default_rng(88)
    count = ROWS * COLUMNS
    number = np.arange(count).reshape(ROWS, COLUMNS)
    right = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()])
    down = np.stack([number[:-1].ravel(), number[1:].ravel()])
    pairs = np.concatenate([right, down], axis=1)
    pairs = pairs[:, rng.random(pairs.shape[1]) < 0.5]
    edges = np.concatenate([pairs, pairs[::-1]], axis=1)
    edges = edges[:, np.argsort(edges[1], kind="stable")]

    generator = torch.Generator().manual_seed(88)
    y = torch.randint(0, CLASSES, (count,), generator=generator)
    centres = torch.randn(CLASSES, DESCRIPTOR, generator=generator)
    x = torch.randn(count, DESCRIPTOR, generator=generator) + 0.2 * centres[y]
    surveyed = (torch.rand(count, generator=generator) < 0.4).float()
    return Data(x=x, edge_index=torch.from_numpy(np.ascontiguousarray(edges)), y=y, surveyed=surveyed)


def segment_mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.BatchNorm1d(HIDDEN),
                         nn.ReLU(inplace=True), nn.Linear(HIDDEN, outputs))


class HedgeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GINConv(segment_mlp(DESCRIPTOR, HIDDEN))
        self.conv2 = GINConv(segment_mlp(HIDDEN, HIDDEN))
        self.conv3 = GINConv(segment_mlp(HIDDEN, HIDDEN))
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x, edge_index):
        x = F.relu(self.conv1(x, edge_index))
        x = F.relu(self.conv2(x, edge_index))
        x = F.relu(self.conv3(x, edge_index))
        return self.head(x)


def main():
    device = torch.device("cuda")
    torch.manual_seed(88)
    torch.set_float32_matmul_precision("high")
    data = make_network()
    model = HedgeNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, fused=True)
    losses = []

    def step():
        x = data.x.to(device)
        edge_index = data.edge_index.to(device)
        y = data.y.to(device)
        surveyed = data.surveyed.to(device)
        optimizer.zero_grad(set_to_none=True)
        logits = model(x, edge_index)
        loss = (F.cross_entropy(logits, y, reduction="none") * surveyed).sum() / surveyed.sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    history = torch.stack(losses).cpu()
    result = [history[0].item(), history[:6].mean().item(), history[6:12].mean().item()]
    print(json.dumps({"program": PROGRAM, "steps": len(losses),
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
