"""Storm-surge nowcasting at tide gauges.

A dilated temporal network reads 48 h of wind, pressure and level history from
one gauge and predicts the residual (observed minus astronomical tide) for the
coming 6 h.  Trained with AdaBelief and per-tensor adaptive clipping, because
the storm cases produce very spiky gradients.
"""
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 20
CHANNELS = 6          # wind u, wind v, pressure, level, tide, d(level)/dt
WINDOW = 288          # 10-minute samples, 48 h
HORIZON = 36
WIDTH = 48
BLOCKS = 20
BATCH = 64
WARMUP, TIMED, BLOCK = 8, 30, 5


class DilatedBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.inp = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.out = nn.Conv1d(width, width, 1)
        self.gain = nn.Parameter(torch.full((1, width, 1), 0.5))

    def forward(self, x):
        h = F.gelu(self.inp(self.norm(x)))
        return x + self.gain * self.out(h)


class SurgeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(CHANNELS, WIDTH, 5, padding=2)
        self.blocks = nn.Sequential(*[DilatedBlock(WIDTH, 2 ** (i % 5)) for i in range(BLOCKS)])
        self.head = nn.Linear(WIDTH, HORIZON)

    def forward(self, x):
        h = self.blocks(self.stem(x))
        return self.head(h[:, :, -12:].mean(-1))


class AdaBelief(torch.optim.Optimizer):
    """AdaBelief (Zhuang et al. 2020), decoupled decay, with the clipping of NFNets."""

    def __init__(self, params, lr=5e-4, betas=(0.9, 0.99), eps=1e-8, weight_decay=1e-2, clip=0.05):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps,
                                      weight_decay=weight_decay, clip=clip))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            lr, eps, clip = group["lr"], group["eps"], group["clip"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["t"] = 0
                    state["m"] = torch.zeros_like(p)
                    state["s"] = torch.zeros_like(p)
                state["t"] += 1
                t, m, s = state["t"], state["m"], state["s"]

                limit = p.norm().clamp_(min=1e-3).mul_(clip)
                scale = limit.div_(p.grad.norm().add_(1e-6)).clamp_(max=1.0)
                g = p.grad * scale

                m.mul_(b1).add_(g, alpha=1 - b1)
                diff = g - m
                s.mul_(b2).addcmul_(diff, diff, value=1 - b2).add_(eps)
                denom = (s / (1 - b2 ** t)).sqrt_().add_(eps)
                p.mul_(1 - lr * group["weight_decay"])
                p.addcdiv_(m, denom, value=-lr / (1 - b1 ** t))


def make_archive(device):
    """Synthetic gauges: tide of two constituents plus wind set-up with a lag."""
    g = torch.Generator().manual_seed(SEED)
    n = 2048
    t = torch.arange(WINDOW + HORIZON) / 6.0
    phase = torch.rand(n, 1, generator=g) * 2 * math.pi
    tide = torch.cos(2 * math.pi * t / 12.42 + phase) + 0.3 * torch.cos(2 * math.pi * t / 12.0)
    wind = torch.cumsum(torch.randn(n, 2, WINDOW + HORIZON, generator=g), -1) * 0.08
    press = torch.cumsum(torch.randn(n, WINDOW + HORIZON, generator=g), -1) * 0.05
    surge = 0.4 * torch.roll(wind[:, 0], 9, -1) - 0.6 * press
    level = tide + surge
    rate = torch.diff(level, dim=-1, prepend=level[:, :1])
    x = torch.stack([wind[:, 0], wind[:, 1], press, level, tide, rate], 1)[:, :, :WINDOW]
    y = surge[:, WINDOW:]
    return x.contiguous().to(device), y.contiguous().to(device)


def main():
    torch.manual_seed(SEED)
    device = torch.device("cuda")
    x, y = make_archive(device)
    model = SurgeNet().to(device)
    optimizer = AdaBelief(model.parameters())
    batches = x.shape[0] // BATCH
    losses = []

    def train_step(i):
        lo = (i % batches) * BATCH
        pred = model(x[lo:lo + BATCH])
        loss = F.smooth_l1_loss(pred, y[lo:lo + BATCH])
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
    for _ in range(TIMED // BLOCK):
        start = time.perf_counter()
        for _ in range(BLOCK):
            train_step(step)
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK * 1e6)
    curve = torch.stack(losses)
    result = [curve[0].item(), curve[:10].mean().item(), curve[-10:].mean().item()]
    times.sort()
    print(json.dumps({"program": "torch_tide_surge", "steps": step,
                      "us": times[len(times) // 2], "result": result}))


if __name__ == "__main__":
    main()
