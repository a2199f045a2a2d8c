"""Trains an encoder on axle-box acceleration windows: defect class and severity of each track section."""
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

NAME = "torch_rail_vibration"
SEED = 5150
DEVICE = torch.device("cuda")

CHANNELS = 4
PATCH = 32
PATCHES = 192
SAMPLES = PATCH * PATCHES
DIM = 1024
HEADS = 16
LAYERS = 8
CLASSES = 9
BATCH = 128
N_BATCHES = 5


def simulate_sections():
    """Wheel-rail roughness with a damped impact train whose spacing depends on the defect."""
    g = torch.Generator(device=DEVICE).manual_seed(SEED)
    n = BATCH * N_BATCHES
    t = torch.arange(SAMPLES, device=DEVICE, dtype=torch.float32)
    label = torch.randint(0, CLASSES, (n,), generator=g, device=DEVICE)
    severity = torch.rand(n, generator=g, device=DEVICE)
    spacing = 120.0 + 40.0 * label.float()
    offset = torch.rand(n, generator=g, device=DEVICE) * spacing
    since = (t[None] + offset[:, None]) % spacing[:, None]
    ring = torch.exp(-since / 25.0) * torch.sin(since * 0.9)
    gains = 0.5 + torch.rand(n, CHANNELS, 1, generator=g, device=DEVICE)
    noise = torch.randn(n, CHANNELS, SAMPLES, generator=g, device=DEVICE)
    signal = gains * (severity[:, None] * ring)[:, None] * 3.0 + 0.5 * noise
    return signal, label, severity


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, s, d = x.shape
        qkv = self.qkv(x).view(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        return self.proj(mixed.transpose(1, 2).reshape(b, s, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm_a = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.norm_m = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attention(self.norm_a(x))
        return x + self.down(F.gelu(self.up(self.norm_m(x)), approximate="tanh"))


class TrackEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(CHANNELS * PATCH, DIM)
        self.position = nn.Parameter(0.02 * torch.randn(1, PATCHES, DIM))
        self.blocks = nn.ModuleList(Block(DIM, HEADS) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.classify = nn.Linear(DIM, CLASSES)
        self.severity = nn.Linear(DIM, 1)

    def forward(self, patches):
        x = self.embed(patches) + self.position
        for block in self.blocks:
            x = block(x)
        pooled = self.norm(x.mean(dim=1))
        return self.classify(pooled), self.severity(pooled).squeeze(1)


def to_patches(signal):
    n = signal.shape[0]
    patches = signal.view(n, CHANNELS, PATCHES, PATCH).permute(0, 2, 1, 3)
    return patches.reshape(n, PATCHES, CHANNELS * PATCH).to(torch.bfloat16)


def train_step(model, optimizer, batch):
    patches, label, severity = batch
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device_type=DEVICE.type, dtype=torch.bfloat16):
        logits, estimate = model(patches)
        loss = F.cross_entropy(logits, label) + F.mse_loss(estimate.float(), severity)
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    torch.manual_seed(SEED)
    signal, label, severity = simulate_sections()
    patches = to_patches(signal)
    batches = list(zip(patches.split(BATCH), label.split(BATCH), severity.split(BATCH)))
    del signal

    model = TrackEncoder().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.05, fused=True)

    losses = [train_step(model, optimizer, b) for b in batches]
    torch.cuda.synchronize()

    times, steps = [], 0
    for _ in range(8):
        start = time.perf_counter()
        for batch in batches:
            losses.append(train_step(model, optimizer, batch))
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / N_BATCHES)
        steps += N_BATCHES

    losses = torch.stack(losses).float().cpu().numpy()
    result = [float(losses[:N_BATCHES].mean()), float(losses[-2 * N_BATCHES:].mean())]
    print(json.dumps({"program": NAME, "steps": steps, "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
