"""Cover fractions of moss, lichen and litter in photographs of survey quadrats.

A bfloat16 network labels every 8 x 8 pixel patch of a quadrat photograph; the
patch probabilities are averaged into cover fractions of a quadrat.
"""
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

NAME = "torch_moss_cover"
BATCH = 32
SIDE = 512
PATCH = 8
WIDTH = 768
DEPTH = 4
CLASSES = 8
BATCHES = 3
WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 8


class PatchBlock(nn.Module):
    """A 3 x 3 convolution over neighbouring patches, then a perceptron per patch."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.reduce = nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.conv(x)
        h = h.permute(0, 2, 3, 1)
        h = self.norm(h)
        h = F.gelu(self.expand(h))
        h = self.reduce(h)
        h = h.permute(0, 3, 1, 2)
        return x + h


class CoverNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH, bias=False)
        self.blocks = nn.ModuleList(PatchBlock(WIDTH) for _ in range(DEPTH))
        self.head = nn.Conv2d(WIDTH, CLASSES, 1, bias=False)

    def forward(self, images):
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_photographs(device):
    """Photographs with patches of different colour and a fine texture, uint8."""
    gen = torch.Generator(device=device).manual_seed(4107)
    batches = []
    for _ in range(BATCHES):
        coarse = torch.rand(BATCH, 3, 16, 16, generator=gen, device=device)
        base = F.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
        grain = torch.randn(BATCH, 3, SIDE, SIDE, generator=gen, device=device)
        image = (base * 200.0 + 25.0 + 12.0 * grain).clamp_(0.0, 255.0)
        batches.append(image.to(torch.uint8))
    return batches


def prepare(photographs):
    images = photographs.to(torch.bfloat16, memory_format=torch.channels_last)
    return images.sub_(118.0).div_(58.0)


@torch.inference_mode()
def quadrat_cover(model, photographs):
    """Cover fraction of each class in each quadrat of a batch."""
    logits = model(prepare(photographs))
    return logits.float().softmax(dim=1).mean(dim=(2, 3))


def main():
    torch.manual_seed(20)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda")
    model = CoverNet().to(device=device, dtype=torch.bfloat16, memory_format=torch.channels_last)
    model.eval()
    batches = make_photographs(device)

    total = torch.zeros(CLASSES, device=device)
    for i in range(WARMUP):
        quadrat_cover(model, batches[i % BATCHES])
    torch.cuda.synchronize()

    times = []
    done = 0
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            cover = quadrat_cover(model, batches[done % BATCHES])
            total += cover.mean(dim=0)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    times.sort()
    median = 0.5 * (times[(len(times) - 1) // 2] + times[len(times) // 2])
    mean_cover = (total / done).double()
    result = [float(mean_cover[0]), float(mean_cover[1]), float(mean_cover.square().sum().sqrt())]
    print(json.dumps({"program": NAME, "steps": done + WARMUP, "us": median * 1e6, "result": result}))


if __name__ == "__main__":
    main()
