"""Predict residue contacts from long protein sequences: a bf16 transformer encoder."""

import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
LENGTH, BATCH = 4096, 2
DIM, HEADS, LAYERS = 512, 8, 4
RESIDUES, CLASSES = 25, 16
WARMUP, ROUNDS, EACH = 4, 8, 5


class PairAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_q = nn.Linear(DIM, DIM, bias=False)
        self.to_k = nn.Linear(DIM, DIM, bias=False)
        self.to_v = nn.Linear(DIM, DIM, bias=False)
        self.out = nn.Linear(DIM, DIM)

    def split(self, t):
        return t.view(*t.shape[:2], HEADS, DIM // HEADS).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.to_q(x)), self.split(self.to_k(x)), self.split(self.to_v(x))
        dots = q @ k.transpose(-1, -2) / math.sqrt(DIM // HEADS)
        weights = dots.softmax(dim=-1)
        out = weights @ v
        return self.out(out.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention = PairAttention()
        self.mlp = nn.Sequential(nn.Linear(DIM, 2048), nn.GELU(), nn.Linear(2048, DIM))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ContactNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(RESIDUES, DIM)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH, DIM))
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, residues):
        x = self.embed(residues) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main():
    torch.manual_seed(9)
    net = ContactNet().to(DEVICE, torch.bfloat16)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    residues = torch.randint(0, RESIDUES, (3, BATCH, LENGTH)).to(DEVICE)
    labels = torch.randint(0, CLASSES, (3, BATCH, LENGTH)).to(DEVICE)
    losses = []

    def step():
        i = len(losses) % 3
        loss = F.cross_entropy(net(residues[i]).float().flatten(0, 1), labels[i].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.detach())

    for _ in range(WARMUP):
        step()
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(EACH):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / EACH)
    result = [losses[i].item() for i in (0, 1, 5)]
    us = statistics.median(times) * 1e6
    print(f"{BATCH * LENGTH / us:.2f} residues a microsecond, losses {result}")
    out = {"program": "torch_contact_transformer", "steps": len(losses), "us": us}
    print(json.dumps(out | {"result": result}))


if __name__ == "__main__":
    main()
