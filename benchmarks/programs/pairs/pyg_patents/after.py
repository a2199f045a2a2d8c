"""Full-batch node classification on a synthetic patent citation graph."""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.utils import degree

PATENTS = 120_000
CITATIONS = 1_200_000
FEATURES = 128
CLASSES = 16
LAYERS = 3
WARMUP = 6
BLOCK = 5
BLOCKS = 6


class NeighbourSum(torch.autograd.Function):
    """adjacency @ x; the normalised adjacency is symmetric, so it serves the backward pass too."""

    @staticmethod
    def forward(ctx, x, adjacency):
        ctx.adjacency = adjacency
        return torch.mm(adjacency, x)

    @staticmethod
    def backward(ctx, gradient):
        return torch.mm(ctx.adjacency, gradient.contiguous()), None


class CitationConv(nn.Module):
    """Symmetric-normalised neighbourhood sum followed by a linear map."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x, adjacency):
        return self.linear(NeighbourSum.apply(x, adjacency))


class PatentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(FEATURES, FEATURES)
        self.convolutions = nn.ModuleList(CitationConv(FEATURES, FEATURES) for _ in range(LAYERS))
        self.classify = nn.Linear(FEATURES, CLASSES)

    def forward(self, x, adjacency):
        x = F.relu(self.encode(x))
        for convolution in self.convolutions:
            x = x + F.relu(convolution(x, adjacency))
        return self.classify(x)


def citation_graph(seed=17):
    """Undirected edges with a preference for early (low-numbered) patents, plus self loops."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    citing = torch.randint(0, PATENTS, (CITATIONS,), device="cuda", generator=generator)
    draw = torch.rand(CITATIONS, device="cuda", generator=generator)
    cited = (draw.pow(1.5) * PATENTS).long().clamp_(max=PATENTS - 1)
    loops = torch.arange(PATENTS, device="cuda")
    source = torch.cat([citing, cited, loops])
    target = torch.cat([cited, citing, loops])
    edge_index = torch.stack([source, target])
    count = degree(target, PATENTS)
    weight = count[source].rsqrt() * count[target].rsqrt()
    order = torch.argsort(target * PATENTS + source)
    rows = torch.zeros(PATENTS + 1, dtype=torch.int64, device="cuda")
    rows[1:] = torch.cumsum(count.long(), 0)
    return torch.sparse_csr_tensor(rows.int(), edge_index[0, order].int(), weight[order],
                                   size=(PATENTS, PATENTS))


def node_data(seed=18):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    label = torch.randint(0, CLASSES, (PATENTS,), device="cuda", generator=generator)
    centre = torch.randn(CLASSES, FEATURES, device="cuda", generator=generator)
    noise = torch.randn(PATENTS, FEATURES, device="cuda", generator=generator)
    return 0.5 * centre[label] + noise, label


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    adjacency = citation_graph()
    features, label = node_data()
    model = PatentNet().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    losses = []

    def train_step():
        logits = model(features, adjacency)
        loss = F.cross_entropy(logits, label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    for _ in range(WARMUP):
        train_step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            train_step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK)

    curve = torch.stack(losses)
    print(json.dumps({"program": "pyg_patents", "steps": WARMUP + BLOCK * BLOCKS,
                      "us": statistics.median(times) * 1e6,
                      "result": [curve[0].item(), curve.mean().item()]}))


if __name__ == "__main__":
    main()
