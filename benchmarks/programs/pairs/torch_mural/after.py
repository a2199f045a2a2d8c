"""Restores photographed wall paintings tile by tile with a convolutional mixer in bf16."""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TILES = 24
TILE = 128
WIDTH = 96
DEPTH = 8
WARMUP = 6
BLOCK = 5
BLOCKS = 8


class MixBlock(nn.Module):
    """3x3 convolution over the tile, then a pointwise two-layer network with LayerNorm."""

    def __init__(self, width):
        super().__init__()
        self.spatial = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.project = nn.Linear(2 * width, width)

    def forward(self, x):
        y = self.spatial(x)
        y = y.permute(0, 2, 3, 1)
        y = self.norm(y)
        y = self.project(F.gelu(self.expand(y)))
        y = y.permute(0, 3, 1, 2)
        return x + y


class Restorer(nn.Module):
    def __init__(self, width=WIDTH, depth=DEPTH):
        super().__init__()
        self.stem = nn.Conv2d(4, width, 3, padding=1)
        self.blocks = nn.ModuleList(MixBlock(width) for _ in range(depth))
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, photo, damage):
        x = self.stem(torch.cat([photo, damage], dim=1))
        for block in self.blocks:
            x = block(x)
        return photo + damage * self.head(x)


def synthetic_tiles(count, generator):
    """Smooth colour fields with cracks; the damage map marks where paint is lost."""
    coarse = torch.rand(count, 3, 12, 12, device="cuda", generator=generator)
    photo = F.interpolate(coarse, size=(TILE, TILE), mode="bicubic", align_corners=False)
    cracks = torch.rand(count, 1, 32, 32, device="cuda", generator=generator)
    damage = (F.interpolate(cracks, size=(TILE, TILE), mode="bilinear") > 0.72).float()
    return photo * (1.0 - damage), damage


def build_model():
    torch.manual_seed(4)
    model = Restorer()
    with torch.no_grad():
        for block in model.blocks:
            block.project.weight.mul_(0.5)
    model = model.to("cuda", torch.bfloat16, memory_format=torch.channels_last).eval()
    return model


@torch.inference_mode()
def restore(model, photo, damage):
    return model(photo, damage)


def main():
    torch.backends.cudnn.benchmark = True
    model = build_model()
    generator = torch.Generator(device="cuda").manual_seed(8)
    # a small pool of tile batches, as the reader thread would leave them on the card
    pool = []
    for _ in range(3):
        photo, damage = synthetic_tiles(TILES, generator)
        pool.append((photo.to(torch.bfloat16, memory_format=torch.channels_last),
                     damage.to(torch.bfloat16, memory_format=torch.channels_last)))

    done = 0

    def run(count):
        nonlocal done
        output = None
        for _ in range(count):
            photo, damage = pool[done % len(pool)]
            output = restore(model, photo, damage)
            done += 1
        return output

    run(WARMUP)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        output = run(BLOCK)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK)

    output = output.float()
    result = [output.abs().mean().item(), output.square().mean().sqrt().item()]
    print(json.dumps({"program": "torch_mural", "steps": done,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
