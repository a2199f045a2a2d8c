"""Predicts the department of catalogue items from a co-purchase graph.

Full-graph training of a two-layer GraphSAGE model on text features of the items.
"""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.nn import MessagePassing

NAME = "pyg_copurchase_sage"
ITEMS = 120_000
PAIRS = 1_000_000
TEXT_DIM = 512
HIDDEN = 64
DEPARTMENTS = 32
WARMUP = 5
BLOCKS = 5
STEPS_PER_BLOCK = 5


class ItemConv(MessagePassing):
    """Mean over the co-purchased items, plus the item itself."""

    def __init__(self, in_channels, out_channels):
        super().__init__(aggr="mean")
        self.neighbour = nn.Linear(in_channels, out_channels, bias=False)
        self.own = nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        around = self.propagate(edge_index, x=self.neighbour(x))
        return around + self.own(x)

    def message(self, x_j):
        return x_j


class DepartmentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = ItemConv(TEXT_DIM, HIDDEN)
        self.conv2 = ItemConv(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, DEPARTMENTS)

    def forward(self, x, edge_index):
        x = F.relu(self.conv1(x, edge_index))
        x = F.relu(self.conv2(x, edge_index))
        return self.head(x)


def synthetic_catalogue(device):
    """Items in departments; pairs mostly stay within a department."""
    generator = torch.Generator(device=device).manual_seed(14)
    department = torch.randint(DEPARTMENTS, (ITEMS,), generator=generator, device=device)
    centres = torch.randn(DEPARTMENTS, TEXT_DIM, generator=generator, device=device)
    x = torch.randn(ITEMS, TEXT_DIM, generator=generator, device=device)
    x += 0.3 * centres[department]

    # sorting by department makes "a neighbour in the same department" an offset
    order = torch.argsort(department, stable=True)
    rank = torch.randint(ITEMS, (PAIRS,), generator=generator, device=device)
    shift = torch.randint(1, 400, (PAIRS,), generator=generator, device=device)
    source = order[rank]
    target = order[(rank + shift) % ITEMS]
    edge_index = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    return x, edge_index, department


def train_step(model, optimizer, x, edge_index, department, train_rows):
    logits = model(x, edge_index)
    loss = F.cross_entropy(logits[train_rows], department[train_rows])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    device = torch.device("cuda")
    torch.manual_seed(9)
    torch.set_float32_matmul_precision("high")
    x, edge_index, department = synthetic_catalogue(device)
    train_rows = torch.arange(0, ITEMS, 4, device=device)
    model = DepartmentNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)

    losses = []
    for _ in range(WARMUP):
        losses.append(train_step(model, optimizer, x, edge_index, department, train_rows))
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            losses.append(train_step(model, optimizer, x, edge_index, department, train_rows))
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK * 1e6)

    values = torch.stack(losses).tolist()
    print(json.dumps({
        "program": NAME,
        "steps": len(losses),
        "us": statistics.median(times),
        "result": [values[0], sum(values[-5:]) / 5],
    }))


if __name__ == "__main__":
    main()
