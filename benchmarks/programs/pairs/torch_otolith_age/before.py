"""Ages of fish from photographs of sectioned otoliths.

A residual convolutional trunk reads the growth rings; a stack of perceptron
layers on the feature cells and a softmax over age classes give the age.
"""
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

NAME = "torch_otolith_age"
BATCH = 128
SIDE = 256
AGES = 32
BATCHES = 3
WARMUP = 20
BLOCKS = 10
STEPS_PER_BLOCK = 10


class ConvUnit(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu_(self.norm(self.conv(x)))


class RingUnit(nn.Module):
    """Two convolutions with a shortcut around them."""

    def __init__(self, width):
        super().__init__()
        self.first = ConvUnit(width, width)
        self.second = ConvUnit(width, width)

    def forward(self, x):
        return self.second(self.first(x)).add_(x)


class CellMixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.reduce = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.reduce(F.gelu(self.expand(self.norm(x)))).add_(x)


class AgeReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 4, stride=4, bias=False)
        self.trunk = nn.Sequential(
            ConvUnit(64, 128, stride=2),
            RingUnit(128),
            RingUnit(128),
            ConvUnit(128, 256, stride=2),
            RingUnit(256),
        )
        self.mixers = nn.Sequential(CellMixer(256), CellMixer(256))
        self.head = nn.Linear(256, AGES)

    def forward(self, images):
        x = self.trunk(F.relu_(self.stem(images)))
        cells = x.permute(0, 2, 3, 1).flatten(1, 2)
        cells = self.mixers(cells)
        return self.head(cells.mean(dim=1))


def make_sections(device):
    """Ring patterns around a shifted nucleus with noise of the camera."""
    gen = torch.Generator(device=device).manual_seed(77)
    axis = torch.linspace(-1.0, 1.0, SIDE, device=device)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    batches = []
    for _ in range(BATCHES):
        centre = 0.2 * torch.randn(BATCH, 2, 1, 1, generator=gen, device=device)
        rings = 4.0 + 20.0 * torch.rand(BATCH, 1, 1, generator=gen, device=device)
        radius = ((yy - centre[:, 0]) ** 2 + (xx - centre[:, 1]) ** 2).sqrt()
        image = torch.cos(6.2832 * rings * radius.sqrt()) * torch.exp(-radius)
        tint = 0.6 + 0.4 * torch.rand(BATCH, 3, 1, 1, generator=gen, device=device)
        noise = 0.1 * torch.randn(BATCH, 3, SIDE, SIDE, generator=gen, device=device)
        image = image.unsqueeze(1) * tint + noise
        batches.append(image.contiguous(memory_format=torch.channels_last))
    return batches


@torch.inference_mode()
def read_ages(model, images, classes):
    """Expected age and its standard deviation for each section."""
    p = model(images).softmax(dim=-1)
    age = p @ classes
    spread = (p @ classes.square() - age.square()).clamp_min_(0.0).sqrt_()
    return age, spread


def main():
    torch.manual_seed(5)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda")
    model = AgeReader().to(device=device, memory_format=torch.channels_last).eval()
    batches = make_sections(device)
    classes = torch.arange(AGES, device=device, dtype=torch.float32)

    for i in range(WARMUP):
        read_ages(model, batches[i % BATCHES], classes)
    torch.cuda.synchronize()

    times = []
    done = 0
    ages = torch.zeros(BATCH, device=device)
    spreads = torch.zeros(BATCH, device=device)
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            age, spread = read_ages(model, batches[done % BATCHES], classes)
            ages += age
            spreads += spread
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    times.sort()
    median = 0.5 * (times[(len(times) - 1) // 2] + times[len(times) // 2])
    result = [float(ages.mean()) / done, float(spreads.mean()) / done, float(ages.norm()) / done]
    print(json.dumps({"program": NAME, "steps": done + WARMUP, "us": median * 1e6, "result": result}))


if __name__ == "__main__":
    main()
