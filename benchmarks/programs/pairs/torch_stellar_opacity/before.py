"""Emulator of Rosseland opacities for stellar interiors, trained on tabulated mixtures."""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ELEMENTS = 22
INPUTS = ELEMENTS + 2
WIDTH = 1024
DEPTH = 8
OUTPUTS = 4
BATCH = 32768
TABLES = 6
WARMUP = 6
BLOCKS = 8
STEPS_PER_BLOCK = 5


def opacity_tables(device):
    """Log opacities of random mixtures over temperature and density."""
    gen = torch.Generator(device=device).manual_seed(53)
    weights = torch.rand(ELEMENTS, OUTPUTS, generator=gen, device=device)
    tables = []
    for _ in range(TABLES):
        log_t = torch.rand(BATCH, 1, generator=gen, device=device) * 4.0 + 3.5
        log_r = torch.rand(BATCH, 1, generator=gen, device=device) * 9.0 - 8.0
        mixture = torch.rand(BATCH, ELEMENTS, generator=gen, device=device)
        mixture = mixture / mixture.sum(dim=1, keepdim=True)
        bump = torch.exp(-((log_t - 5.2) / 0.3) ** 2)
        kramers = 0.3 * log_r - 0.7 * (log_t - 5.0)
        target = kramers + bump * (mixture @ weights) + 0.1 * torch.sin(3.0 * log_t)
        inputs = torch.cat([(log_t - 5.5) / 1.2, (log_r + 3.5) / 2.6, mixture * ELEMENTS], dim=1)
        tables.append((inputs, target))
    return tables


class FeatureNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.pow(2).mean(dim=-1, keepdim=True)
        normed = centred * torch.rsqrt(variance + self.eps)
        return normed * self.weight + self.bias


class ResidualLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = FeatureNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.linear(self.norm(x)))


class OpacityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(INPUTS, WIDTH)
        self.layers = nn.ModuleList([ResidualLayer(WIDTH) for _ in range(DEPTH)])
        self.norm = FeatureNorm(WIDTH)
        self.readout = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, inputs):
        x = self.lift(inputs)
        for layer in self.layers:
            x = layer(x)
        return self.readout(self.norm(x))


def main():
    torch.manual_seed(61)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    tables = opacity_tables(device)
    model = OpacityNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    losses = []

    def train_step(i):
        inputs, target = tables[i % TABLES]
        loss = F.smooth_l1_loss(model(inputs), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    step = 0
    for _ in range(WARMUP):
        train_step(step)
        step += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            train_step(step)
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK * 1e6)

    first = float(torch.stack(losses[:TABLES]).mean())
    weights = float(torch.stack([p.detach().norm() for p in model.parameters()]).norm())
    print(json.dumps({"program": "torch_stellar_opacity", "steps": step,
                      "us": statistics.median(times), "result": [first, weights]}))


if __name__ == "__main__":
    main()
