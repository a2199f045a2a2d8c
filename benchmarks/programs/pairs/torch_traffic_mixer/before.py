"""Short-term traffic forecasting with a deep mixer over road detectors and history.

Every sample has the last 48 readings of 32 detectors of a corridor; the net predicts the next hour of each.
An averaged copy of the weights is kept for the evening evaluation.
"""
import copy
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_traffic_mixer"
DETECTORS, HISTORY, HORIZON = 32, 48, 12
WIDTH, DEPTH = 192, 40
BATCH = 192
WARMUP, BLOCKS, PER_BLOCK = 8, 6, 8


def corridor_readings(n, seed=21):
    """Daily waves with congestion travelling upstream."""
    gen = torch.Generator().manual_seed(seed)
    t = torch.arange(HISTORY + HORIZON).float()
    phase = torch.rand(n, 1, 1, generator=gen) * 6.283
    lag = torch.arange(DETECTORS).float().view(1, -1, 1) * 0.15
    flow = torch.sin(0.21 * t + phase - lag) + 0.4 * torch.sin(0.05 * t * (1 + phase) + lag)
    flow = flow + 0.1 * torch.randn(n, DETECTORS, HISTORY + HORIZON, generator=gen)
    return flow[..., :HISTORY].contiguous(), flow[..., HISTORY:].contiguous()


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm_space = nn.LayerNorm(width)
        self.space = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.norm_feat = nn.LayerNorm(width)
        self.feat = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.space(self.norm_space(x).transpose(1, 2)).transpose(1, 2)
        return x + self.feat(self.norm_feat(x))


class CorridorMixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(HISTORY, WIDTH)
        self.blocks = nn.ModuleList(MixerBlock(DETECTORS, WIDTH) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, HORIZON)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def limit_gradients(params, max_norm=1.0):
    total = torch.zeros((), device=params[0].device)
    for p in params:
        total += p.grad.norm() ** 2
    scale = (max_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.mul_(scale)


@torch.no_grad()
def update_average(average, params, decay=0.995):
    for a, p in zip(average, params):
        a.mul_(decay).add_(p, alpha=1.0 - decay)


def train_step(model, params, average, opt, past, future):
    loss = F.smooth_l1_loss(model(past), future)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    limit_gradients(params)
    opt.step()
    update_average(average, params)
    return loss.detach()


def main():
    torch.manual_seed(5)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    past, future = (t.to(device) for t in corridor_readings(BATCH * 16))
    past, future = past.split(BATCH), future.split(BATCH)

    model = CorridorMixer().to(device)
    averaged = copy.deepcopy(model).requires_grad_(False)
    params, average = list(model.parameters()), list(averaged.parameters())
    opt = torch.optim.AdamW(params, lr=2e-4, weight_decay=1e-2, fused=True)

    done = 0
    for _ in range(WARMUP):
        train_step(model, params, average, opt, past[done % 16], future[done % 16])
        done += 1
    torch.cuda.synchronize()

    spans, losses = [], []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            losses.append(train_step(model, params, average, opt, past[done % 16], future[done % 16]))
            done += 1
        torch.cuda.synchronize()
        spans.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    with torch.no_grad():
        held = F.smooth_l1_loss(averaged(past[0]), future[0]).item()
    print(json.dumps({"program": NAME, "steps": done, "us": statistics.median(spans),
                      "result": [torch.stack(losses).mean().item(), held]}))


if __name__ == "__main__":
    main()
