"""Full-batch node classification with a two-layer GCN on a synthetic citation graph."""

import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

DEVICE = "cuda"
NODES = 200_000
DEGREE = 20
FEATURES = 64
HIDDEN = 16
CLASSES = 16
WARMUP = 6
BLOCKS = 6
STEPS_PER_BLOCK = 6


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(FEATURES, HIDDEN)
        self.conv2 = GCNConv(HIDDEN, CLASSES)

    def forward(self, x, edge_index):
        x = F.relu(self.conv1(x, edge_index))
        return self.conv2(x, edge_index)


def make_graph():
    g = torch.Generator().manual_seed(7)
    src = torch.randint(0, NODES, (NODES * DEGREE,), generator=g)
    step = (torch.randn(NODES * DEGREE, generator=g) * 2000).long()
    dst = (src + step) % NODES
    keep = src != dst
    x = torch.randn(NODES, FEATURES, generator=g)
    y = (torch.arange(NODES) * CLASSES) // NODES
    x[:, :CLASSES] += F.one_hot(y, CLASSES) * 0.5
    return x.to(DEVICE), torch.stack([src[keep], dst[keep]]).to(DEVICE), y.to(DEVICE)


def main():
    x, edge_index, y = make_graph()
    train = torch.arange(0, NODES, 10, device=DEVICE)
    torch.manual_seed(7)
    model = GCN().to(DEVICE)
    opt = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    print(f"{NODES} nodes, {edge_index.size(1)} edges")
    count = 0

    def epoch():
        nonlocal count
        count += 1
        logits = model(x, edge_index)
        loss = F.cross_entropy(logits[train], y[train])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss

    first = epoch()
    for _ in range(WARMUP):
        epoch()
    torch.cuda.synchronize()
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            loss = epoch()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"epoch {(block + 1) * STEPS_PER_BLOCK}: loss {loss.item():.4f}")
    with torch.no_grad():
        accuracy = (model(x, edge_index).argmax(1) == y).float().mean().item()
    print(f"accuracy {accuracy:.4f}")
    out = {
        "program": "torch_gnn_citation",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [first.item(), loss.item(), accuracy],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
