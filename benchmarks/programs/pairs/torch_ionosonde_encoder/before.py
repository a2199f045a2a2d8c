"""Offline embedding of an archive of ionosonde soundings.

A sounding is cut in 256 patches (virtual height by frequency); a wide
transformer encoder gives one vector a sounding, which is used for searching
the archive for similar ionospheric conditions.  Throughput is all that counts.
"""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_ionosonde_encoder"
DEVICE = "cuda"
DTYPE = torch.bfloat16
BATCH = 64
PATCHES = 256
PATCH_DIM = 256
WIDTH = 2048
HEADS = 16
DEPTH = 4
WARMUP = 6
BLOCKS = 8
PER_BLOCK = 4


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, w // self.heads).unbind(2)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.out(y.transpose(1, 2).reshape(b, n, w))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class SoundingEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(PATCH_DIM, WIDTH)
        self.place = nn.Parameter(torch.randn(PATCHES, WIDTH) * 0.02)
        self.blocks = nn.ModuleList([Block(WIDTH, HEADS) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 512)

    def forward(self, patches):
        x = self.embed(patches) + self.place
        for block in self.blocks:
            x = block(x)
        pooled = self.norm(x).mean(dim=1)
        return F.normalize(self.head(pooled).float(), dim=-1)


def make_soundings():
    """Echo traces that rise with frequency, speckled, as patch vectors."""
    generator = torch.Generator(device=DEVICE).manual_seed(1957)
    base = torch.randn(BATCH, 1, PATCH_DIM, generator=generator, device=DEVICE)
    trend = torch.linspace(-1, 1, PATCHES, device=DEVICE)[None, :, None]
    speckle = torch.randn(BATCH, PATCHES, PATCH_DIM, generator=generator, device=DEVICE)
    return (base * trend + 0.5 * speckle).to(DTYPE)


@torch.inference_mode()
def main():
    torch.manual_seed(3)
    with torch.device(DEVICE):
        encoder = SoundingEncoder().to(DTYPE)
    encoder.eval()
    soundings = make_soundings()

    steps = 0
    for _ in range(WARMUP):
        vectors = encoder(soundings)
        steps += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(PER_BLOCK):
            vectors = encoder(soundings)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / PER_BLOCK)
        steps += PER_BLOCK

    nearest = (vectors @ vectors.T).fill_diagonal_(-1).amax(dim=1).mean().item()
    print(json.dumps({"program": NAME, "steps": steps,
                      "us": statistics.median(times) * 1e6,
                      "result": [nearest, vectors.abs().mean().item()]}))


if __name__ == "__main__":
    main()
