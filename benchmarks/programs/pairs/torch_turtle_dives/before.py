"""Behaviour of tagged sea turtles from dive profiles of different durations."""
import json
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)
DEVICE = torch.device("cuda")

DIVES = 512
BATCH = 64
CHANNELS = 8
SHORTEST, LONGEST = 96, 768
WIDTH = 384
HEADS = 6
DEPTH = 6
BEHAVIOURS = 5


class DiveLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_a = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm_b = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, keep):
        b, t, w = x.shape
        qkv = self.qkv(self.norm_a(x)).view(b, t, 3, HEADS, w // HEADS)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm_b(x))))


class DiveClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(CHANNELS, WIDTH)
        self.place = nn.Parameter(torch.randn(LONGEST, WIDTH) * 0.02)
        self.layers = nn.ModuleList([DiveLayer() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, BEHAVIOURS)

    def forward(self, profile, valid):
        x = self.embed(profile) + self.place[:profile.shape[1]]
        keep = valid[:, None, None, :]
        for layer in self.layers:
            x = layer(x, keep)
        weight = valid[:, :, None].to(x.dtype)
        pooled = (self.norm(x) * weight).sum(dim=1) / weight.sum(dim=1)
        return self.head(pooled)


def record_dives(rng):
    """Depth, temperature and acceleration channels of each dive, with its behaviour."""
    dives = []
    for _ in range(DIVES):
        length = int(SHORTEST + (LONGEST - SHORTEST) * rng.beta(1.2, 1.6))
        behaviour = int(rng.integers(BEHAVIOURS))
        clock = np.linspace(0.0, 1.0, length)[:, None]
        rate = (1.0 + behaviour) * np.linspace(0.5, 2.0, CHANNELS)
        profile = np.sin(math.pi * clock) * np.cos(2.0 * math.pi * rate * clock + rng.uniform(0.0, 6.28))
        profile = profile + 0.3 * rng.standard_normal((length, CHANNELS))
        dives.append((profile.astype(np.float32), behaviour))
    return dives


def make_batches(dives, rng):
    """Batches of the whole archive, each as long as its longest dive (a multiple of 16)."""
    order = rng.permutation(len(dives))
    groups = order.reshape(-1, BATCH)
    batches = []
    for group in groups:
        longest = max(len(dives[i][0]) for i in group)
        padded = -(-longest // 16) * 16
        profile = np.zeros((BATCH, padded, CHANNELS), dtype=np.float32)
        valid = np.zeros((BATCH, padded), dtype=bool)
        for row, i in enumerate(group):
            signal = dives[i][0]
            profile[row, :len(signal)] = signal
            valid[row, :len(signal)] = True
        label = np.array([dives[i][1] for i in group])
        batches.append(tuple(torch.from_numpy(a).to(DEVICE) for a in (profile, valid, label)))
    return batches


def main():
    rng = np.random.default_rng(64)
    batches = make_batches(record_dives(rng), rng)
    model = DiveClassifier().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=1e-2, fused=True)

    def accumulate(batch):
        profile, valid, label = batch
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(profile, valid)
        loss = F.cross_entropy(logits.float(), label, reduction="sum") / DIVES
        loss.backward()
        return loss.detach()

    def archive_pass():
        optimizer.zero_grad(set_to_none=True)
        total = torch.stack([accumulate(batch) for batch in batches]).sum()
        optimizer.step()
        return total

    losses = [archive_pass() for _ in range(2)]
    torch.cuda.synchronize()

    times = []
    for _ in range(8):
        start = time.perf_counter()
        losses.append(archive_pass())
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / len(batches))

    median = sorted(times)[len(times) // 2] * 1e6
    print(json.dumps({"program": "torch_turtle_dives", "steps": len(losses) * len(batches), "us": round(median, 1),
                      "result": [round(losses[0].item(), 5), round(losses[1].item(), 5)]}))


if __name__ == "__main__":
    main()
