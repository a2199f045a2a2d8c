"""Short-term ridership forecast over the stations of a subway network."""
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

STATIONS = 192
HISTORY = 48
HORIZON = 12
HOURS = 4096
BATCH = 256
DIM = 256
HEADS = 4
LAYERS = 6
WARMUP = 250
BLOCKS = 10
BLOCK_STEPS = 10
DEVICE = torch.device("cuda")


class FeatureNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class StationAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, s, DIM))


class NetworkLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_stations = FeatureNorm(DIM)
        self.attention = StationAttention()
        self.norm_features = FeatureNorm(DIM)
        self.up = nn.Linear(DIM, 2 * DIM)
        self.down = nn.Linear(2 * DIM, DIM)

    def forward(self, x):
        x = x + self.attention(self.norm_stations(x))
        return x + self.down(F.gelu(self.up(self.norm_features(x))))


class RidershipModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.history = nn.Linear(HISTORY, DIM)
        self.station = nn.Parameter(0.02 * torch.randn(1, STATIONS, DIM))
        self.layers = nn.ModuleList(NetworkLayer() for _ in range(LAYERS))
        self.norm = FeatureNorm(DIM)
        self.head = nn.Linear(DIM, HORIZON)

    def forward(self, counts):
        x = self.history(counts) + self.station
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def make_ridership(seed):
    gen = torch.Generator(device=DEVICE).manual_seed(seed)
    hours = torch.arange(HOURS + HISTORY + HORIZON, device=DEVICE).view(-1, 1)
    phase = torch.rand(1, STATIONS, generator=gen, device=DEVICE) * 2 * math.pi
    level = torch.rand(1, STATIONS, generator=gen, device=DEVICE) + 0.5
    daily = torch.sin(2 * math.pi * hours / 24 + phase)
    weekly = torch.cos(2 * math.pi * hours / 168 + 0.5 * phase)
    noise = torch.randn(hours.shape[0], STATIONS, generator=gen, device=DEVICE)
    counts = level * (daily + 0.5 * weekly) + 0.1 * noise
    windows = counts.unfold(0, HISTORY + HORIZON, 1)[:HOURS]
    order = torch.randperm(HOURS, generator=gen, device=DEVICE)
    windows = windows[order].contiguous()
    return windows[..., :HISTORY].contiguous(), windows[..., HISTORY:].contiguous()


def train_step(model, optimizer, history, future, step):
    start = (step % (HOURS // BATCH)) * BATCH
    counts = history[start:start + BATCH]
    target = future[start:start + BATCH]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        forecast = model(counts)
    loss = F.smooth_l1_loss(forecast.float(), target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def main():
    torch.manual_seed(41)
    history, future = make_ridership(seed=42)
    model = RidershipModel().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.01, fused=True)

    losses = []
    step = 0
    for _ in range(WARMUP):
        losses.append(train_step(model, optimizer, history, future, step))
        step += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            losses.append(train_step(model, optimizer, history, future, step))
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / BLOCK_STEPS * 1e6)

    losses = torch.stack(losses)
    with torch.no_grad():
        weights = sum(p.double().square().sum() for p in model.parameters()).sqrt().item()
    print(json.dumps({"program": "torch_subway_ridership", "steps": step, "us": statistics.median(times),
                      "result": [losses.mean().item(), losses[:50].mean().item(), weights]}))


if __name__ == "__main__":
    main()
