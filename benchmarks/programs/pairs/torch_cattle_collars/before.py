"""Behaviour of cattle from collar accelerometers.

Windows of a three-axis accelerometer are cut into patches, embedded and passed
through a transformer encoder that separates grazing, ruminating, walking, lying
and drinking.  Training uses the AdaBelief optimizer with decoupled weight decay.
"""
import json
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

AXES = 3
PATCH = 16
PATCHES = 128
WIDTH = 384
HEADS = 6
LAYERS = 8
CLASSES = 5
HERD = 64
RECORDINGS = 6
WARMUP = 60
BLOCKS = 10
STEPS_PER_BLOCK = 10


class AdaBelief(torch.optim.Optimizer):
    def __init__(self, params, lr=1.0e-3, betas=(0.9, 0.999), eps=1.0e-8, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            group["count"] = group.get("count", 0) + 1
            bias1 = 1.0 - beta1 ** group["count"]
            bias2 = 1.0 - beta2 ** group["count"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["mean"] = torch.zeros_like(p)
                    state["belief"] = torch.zeros_like(p)
                mean, belief = state["mean"], state["belief"]
                p.mul_(1.0 - group["lr"] * group["weight_decay"])
                mean.mul_(beta1).add_(p.grad, alpha=1.0 - beta1)
                surprise = p.grad - mean
                belief.mul_(beta2).addcmul_(surprise, surprise, value=1.0 - beta2)
                denominator = (belief / bias2).sqrt_().add_(group["eps"])
                p.addcdiv_(mean, denominator, value=-group["lr"] / bias1)


class CollarEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(AXES * PATCH, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(1, PATCHES, WIDTH))
        self.layers = nn.ModuleList([
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu",
                                       batch_first=True, norm_first=True)
            for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, windows):
        x = self.patch(windows) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


def collar_windows(seed, device):
    generator = torch.Generator(device=device).manual_seed(seed)
    samples = PATCH * PATCHES
    clock = torch.arange(samples, device=device) / 25.0
    recordings = []
    for _ in range(RECORDINGS):
        label = torch.randint(0, CLASSES, (HERD,), generator=generator, device=device)
        rhythm = 0.4 + 0.6 * label.float()
        phase = 2.0 * math.pi * torch.rand(HERD, AXES, 1, generator=generator, device=device)
        swing = torch.sin(2.0 * math.pi * rhythm[:, None, None] * clock + phase)
        noise = torch.randn(HERD, AXES, samples, generator=generator, device=device)
        signal = swing + 0.8 * noise
        patches = signal.reshape(HERD, AXES, PATCHES, PATCH).permute(0, 2, 1, 3)
        recordings.append((patches.reshape(HERD, PATCHES, AXES * PATCH).contiguous(), label))
    return recordings


def main():
    torch.manual_seed(8128)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    recordings = collar_windows(8128, device)
    model = CollarEncoder().to(device)
    optimizer = AdaBelief(model.parameters(), lr=1.0e-4, weight_decay=0.01)

    step = 0
    losses = []

    def train(count):
        nonlocal step
        for _ in range(count):
            windows, label = recordings[step % RECORDINGS]
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(windows), label)
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
    print("loss of the last round", float(history[-RECORDINGS:].mean()))
    result = [float(history[0]), float(history[1]), float(norm)]
    print(json.dumps({"program": "torch_cattle_collars", "steps": step,
                      "us": float(np.median(times) * 1e6), "result": result}))


if __name__ == "__main__":
    main()
