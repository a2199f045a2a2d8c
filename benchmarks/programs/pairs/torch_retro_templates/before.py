"""Template ranking for retrosynthesis: molecular fingerprints to reaction templates.

A wide feed-forward classifier is trained on count-free circular fingerprints
held on the device; the labels follow a long-tailed template distribution.
"""
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

NAME = "torch_retro_templates"
BITS = 8192
WIDTH = 8192
DEPTH = 4
TEMPLATES = 16384
REACTIONS = 49152
BATCH = 8192
DENSITY = 0.012
WARMUP = 10
BLOCKS = 10
PER_BLOCK = 8


def make_library(generator, device):
    """Fingerprints as bytes, with the template of each reaction."""
    popularity = torch.arange(1, TEMPLATES + 1, device=device, dtype=torch.float32).pow(-0.8)
    labels = torch.multinomial(popularity, REACTIONS, replacement=True, generator=generator)
    prints = torch.empty(REACTIONS, BITS, dtype=torch.uint8, device=device)
    for first in range(0, REACTIONS, BATCH):
        noise = torch.rand(BATCH, BITS, generator=generator, device=device)
        prints[first:first + BATCH] = (noise < DENSITY).to(torch.uint8)
    rows = torch.arange(REACTIONS, device=device)
    for stride in (1, 37, 211, 1009):
        prints[rows, (labels * stride + 13 * stride) % BITS] = 1
    return prints, labels


class TemplateRanker(nn.Module):
    def __init__(self, bits, width, depth, templates):
        super().__init__()
        sizes = [bits] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        self.head = nn.Linear(width, templates)

    def forward(self, prints):
        h = prints
        for layer in self.hidden:
            h = F.relu(layer(h), inplace=True)
        return self.head(h)


def build_model(device):
    with torch.device(device):
        model = TemplateRanker(BITS, WIDTH, DEPTH, TEMPLATES)
    for layer in model.hidden:
        nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return model.to(torch.bfloat16)


def epoch_order(epochs, generator, device):
    """Batches of shuffled reaction numbers for all epochs."""
    orders = [torch.randperm(REACTIONS, generator=generator, device=device) for _ in range(epochs)]
    return torch.cat(orders).view(-1, BATCH)


def main():
    torch.manual_seed(23)
    device = torch.device("cuda")
    generator = torch.Generator(device=device).manual_seed(5)
    prints, labels = make_library(generator, device)

    model = build_model(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.01, fused=True)

    total = WARMUP + BLOCKS * PER_BLOCK
    batches = epoch_order(total * BATCH // REACTIONS + 1, generator, device)
    losses = []

    def train_step(n):
        rows = batches[n]
        x = prints[rows].to(torch.bfloat16)
        logits = model(x)
        loss = F.cross_entropy(logits, labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    steps = 0
    for _ in range(WARMUP):
        train_step(steps)
        steps += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            train_step(steps)
            steps += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    curve = torch.stack(losses).float().cpu()
    result = [float(curve[0]), float(curve[:10].mean()), float(curve[-10:].mean())]
    times.sort()
    print(json.dumps({"program": NAME, "steps": steps, "us": times[len(times) // 2], "result": result}))


if __name__ == "__main__":
    main()
