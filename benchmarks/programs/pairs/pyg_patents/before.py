"""Full-batch node classification on a synthetic patent citation graph."""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import degree

PATENTS = 120_000
CITATIONS = 1_200_000
FEATURES = 128
CLASSES = 16
LAYERS = 3
WARMUP = 6
BLOCK = 5
BLOCKS = 6


class CitationConv(MessagePassing):
    """Symmetric-normalised neighbourhood sum followed by a linear map."""

    def __init__(self, inputs, outputs):
        super().__init__(aggr="add")
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x, edge_index, weight):
        mixed = self.propagate(edge_index, x=x, weight=weight)
        return self.linear(mixed)

    def message(self, x_j, weight):
        return weight.view(-1, 1) * x_j


class PatentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(FEATURES, FEATURES)
        self.convolutions = nn.ModuleList(CitationConv(FEATURES, FEATURES) for _ in range(LAYERS))
        self.classify = nn.Linear(FEATURES, CLASSES)

    def forward(self, x, edge_index, weight):
        x = F.relu(self.encode(x))
        for convolution in self.convolutions:
            x = x + F.relu(convolution(x, edge_index, weight))
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
    return edge_index, weight


def node_data(seed=18):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    label = torch.randint(0, CLASSES, (PATENTS,), device="cuda", generator=generator)
    centre = torch.randn(CLASSES, FEATURES, device="cuda", generator=generator)
    noise = torch.randn(PATENTS, FEATURES, device="cuda", generator=generator)
    return 0.5 * centre[label] + noise, label


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    edge_index, weight = citation_graph()
    features, label = node_data()
    model = PatentNet().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    losses = []

    def train_step():
        logits = model(features, edge_index, weight)
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
