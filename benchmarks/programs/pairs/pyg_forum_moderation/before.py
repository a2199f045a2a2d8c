"""Hourly risk scores for the accounts of a discussion forum.

Accounts are linked by who replies to whom; a graph network with feed-forward blocks turns the
activity features of each hour into a score for every account.
"""
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.nn import MessagePassing

ACCOUNTS = 200_000
REPLIES = 4_000_000
FEATURES = 128
HIDDEN = 2048
LAYERS = 3
HOURS = 6
WARMUP = 100
BLOCKS = 10
STEPS_PER_BLOCK = 10

device = torch.device("cuda")
torch.set_float32_matmul_precision("high")


def make_replies():
    gen = torch.Generator(device=device).manual_seed(31)
    author = torch.randint(0, ACCOUNTS, (REPLIES,), generator=gen, device=device)
    popularity = torch.rand(REPLIES, generator=gen, device=device).pow(1.5)
    target = (popularity * ACCOUNTS).long().clamp(max=ACCOUNTS - 1)
    shuffled = torch.randperm(ACCOUNTS, generator=gen, device=device)
    target = shuffled[target]
    own = torch.arange(ACCOUNTS, device=device)
    source = torch.cat([author, own])
    target = torch.cat([target, own])
    pairs = torch.unique(target * ACCOUNTS + source, sorted=True)
    return pairs % ACCOUNTS, torch.div(pairs, ACCOUNTS, rounding_mode="floor")


def normalised_weights(source, target):
    received = torch.bincount(target, minlength=ACCOUNTS).float()
    sent = torch.bincount(source, minlength=ACCOUNTS).float()
    return (sent[source] * received[target]).rsqrt()


class ReplyGraph:
    def __init__(self):
        source, target = make_replies()
        self.edge_index = torch.stack([source, target])
        self.weight = normalised_weights(source, target)


class ReplyConv(MessagePassing):
    def __init__(self, channels):
        super().__init__(aggr="add")
        self.lin = nn.Linear(channels, channels)

    def forward(self, x, graph):
        return self.propagate(graph.edge_index, x=self.lin(x), edge_weight=graph.weight)

    def message(self, x_j, edge_weight):
        return edge_weight.view(-1, 1) * x_j


class ModerationBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = ReplyConv(FEATURES)
        self.norm1 = nn.LayerNorm(FEATURES)
        self.expand = nn.Linear(FEATURES, HIDDEN)
        self.contract = nn.Linear(HIDDEN, FEATURES)
        self.norm2 = nn.LayerNorm(FEATURES)

    def forward(self, x, graph):
        x = self.norm1(x + self.conv(x, graph))
        return self.norm2(x + self.contract(F.relu(self.expand(x), inplace=True)))


class ModerationNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(ModerationBlock() for _ in range(LAYERS))
        self.score = nn.Linear(FEATURES, 1)

    def forward(self, x, graph):
        for block in self.blocks:
            x = block(x, graph)
        return self.score(x).squeeze(-1)


def make_hours():
    gen = torch.Generator(device=device).manual_seed(32)
    return [torch.randn(ACCOUNTS, FEATURES, generator=gen, device=device) for _ in range(HOURS)]


@torch.no_grad()
def main():
    graph = ReplyGraph()
    hours = make_hours()
    torch.manual_seed(33)
    net = ModerationNet().to(device).eval()
    risk = torch.zeros(ACCOUNTS, device=device)
    done = 0

    def step():
        nonlocal done
        scores = net(hours[done % HOURS], graph)
        risk.mul_(0.95).add_(torch.sigmoid(scores), alpha=0.05)
        done += 1

    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    final = risk.double()
    result = [final.mean().item(), final.std().item(), final.max().item()]
    print(json.dumps({"program": "pyg_forum_moderation", "steps": done,
                      "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
