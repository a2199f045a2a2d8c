"""Defect pattern classes of wafer maps with a patch transformer in bfloat16."""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

GRID = 24
PATCH = 8
LAYER_IMAGES = 3
BATCH = 32
WIDTH = 768
HEADS = 12
DEPTH = 6
PATTERNS = 9
WARMUP = 6
BLOCKS = 8
STEPS_PER_BLOCK = 5


def wafer_batches(device, count):
    """Inspection images of wafers, cut into patches, with a pattern for every wafer."""
    gen = torch.Generator(device=device).manual_seed(41)
    side = GRID * PATCH
    axis = torch.linspace(-1, 1, side, device=device)
    radius = torch.hypot(axis[:, None], axis[None, :])
    batches = []
    for _ in range(count):
        pattern = torch.randint(0, PATTERNS, (BATCH,), generator=gen, device=device)
        ring = torch.cos((3.0 + pattern[:, None, None]) * radius)
        image = ring[:, None] + 0.5 * torch.randn(BATCH, LAYER_IMAGES, side, side, generator=gen,
                                                  device=device)
        image = image * (radius < 1.0)
        patches = image.reshape(BATCH, LAYER_IMAGES, GRID, PATCH, GRID, PATCH)
        patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(BATCH, GRID * GRID, -1)
        batches.append((patches.to(torch.bfloat16).contiguous(), pattern))
    return batches


class WaferAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        return self.out(mixed.transpose(1, 2).reshape(b, n, c))


class WaferBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = WaferAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.reduce = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.reduce(F.gelu(self.expand(self.norm2(x))))


class WaferNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(LAYER_IMAGES * PATCH * PATCH, WIDTH)
        self.position = nn.Parameter(torch.randn(GRID * GRID, WIDTH) * 0.02)
        self.blocks = nn.ModuleList([WaferBlock(WIDTH, HEADS) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, PATTERNS)

    def forward(self, patches):
        x = self.embed(patches) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


def main():
    torch.manual_seed(23)
    device = torch.device("cuda")
    batches = wafer_batches(device, 8)
    model = WaferNet().to(device=device, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.05, fused=True)
    losses = []

    def train_step(i):
        patches, pattern = batches[i % len(batches)]
        loss = F.cross_entropy(model(patches).float(), pattern)
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

    first = float(torch.stack(losses[:8]).mean())
    weights = float(torch.stack([p.detach().float().norm() for p in model.parameters()]).norm())
    print(json.dumps({"program": "torch_wafer_maps", "steps": step,
                      "us": statistics.median(times), "result": [first, weights]}))


if __name__ == "__main__":
    main()
