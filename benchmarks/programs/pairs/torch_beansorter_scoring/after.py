"""Grades green coffee beans on a sorting belt.

The camera delivers eight bean crops for each air-jet cycle; a mobile-style network
with squeeze-excitation decides for every crop which of the ejectors fires.
"""
import json
import statistics
import time

import torch
import torch.nn as nn

NAME = "torch_beansorter_scoring"
LANES = 8
CROP = 64
GRADES = 6
STAGES = [(32, 4), (64, 6), (128, 10), (192, 6)]
WARMUP = 10
BLOCKS = 8
STEPS_PER_BLOCK = 6


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduction=4):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, channels // reduction, 1)
        self.expand = nn.Conv2d(channels // reduction, channels, 1)
        self.act = nn.ReLU(inplace=True)
        self.gate = nn.Hardsigmoid(inplace=True)

    def forward(self, x):
        return x * self.gate(self.expand(self.act(self.reduce(self.pool(x)))))


class InvertedResidual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        mid = cin * 2
        self.body = nn.Sequential(
            nn.Conv2d(cin, mid, 1, bias=False),
            nn.BatchNorm2d(mid),
            nn.Hardswish(inplace=True),
            nn.Conv2d(mid, mid, 3, stride=stride, padding=1, groups=mid, bias=False),
            nn.BatchNorm2d(mid),
            nn.Hardswish(inplace=True),
            SqueezeExcite(mid),
            nn.Conv2d(mid, cout, 1, bias=False),
            nn.BatchNorm2d(cout),
        )
        self.residual = stride == 1 and cin == cout

    def forward(self, x):
        y = self.body(x)
        return x + y if self.residual else y


class BeanNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, STAGES[0][0], 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(STAGES[0][0]),
            nn.Hardswish(inplace=True),
        )
        blocks = []
        cin = STAGES[0][0]
        for index, (cout, depth) in enumerate(STAGES):
            for i in range(depth):
                stride = 2 if i == 0 and index > 0 else 1
                blocks.append(InvertedResidual(cin, cout, stride))
                cin = cout
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(cin, GRADES)

    def forward(self, crops):
        x = self.blocks(self.stem(crops))
        return self.head(self.pool(x).flatten(1)).softmax(dim=1)


class Sorter:
    def __init__(self, model, device):
        self.model = model
        self.evidence = torch.zeros(LANES, GRADES, device=device)
        self.crops = torch.zeros(LANES, 3, CROP, CROP, device=device)
        self.graph = torch.cuda.CUDAGraph()
        self.capture()

    @torch.no_grad()
    def update(self):
        scores = self.model(self.crops)
        self.evidence.mul_(0.9).add_(scores, alpha=0.1)
        return scores

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.update()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self.graph):
            self.scores = self.update()
        self.evidence.zero_()

    def cycle(self, crops):
        """One belt cycle: grade the crops and update the running evidence of each lane."""
        self.crops.copy_(crops)
        self.graph.replay()
        return self.scores


def belt_frames(count, generator, device):
    """Ellipses of varied colour on a dark belt."""
    axis = torch.linspace(-1, 1, CROP, device=device)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    shape = 0.3 + 0.5 * torch.rand(count, LANES, 2, 1, 1, generator=generator, device=device)
    mask = ((y / shape[:, :, 0]) ** 2 + (x / shape[:, :, 1]) ** 2 < 1).float()
    colour = torch.rand(count, LANES, 3, 1, 1, generator=generator, device=device)
    noise = torch.randn(count, LANES, 3, CROP, CROP, generator=generator, device=device)
    return mask.unsqueeze(2) * colour + 0.05 * noise


def main():
    device = torch.device("cuda")
    torch.manual_seed(21)
    generator = torch.Generator(device=device).manual_seed(2)
    model = BeanNet().to(device).eval()
    frames = belt_frames(16, generator, device)
    sorter = Sorter(model, device)

    for i in range(WARMUP):
        sorter.cycle(frames[i % len(frames)])
    torch.cuda.synchronize()

    times = []
    steps = WARMUP
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            sorter.cycle(frames[steps % len(frames)])
            steps += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK * 1e6)

    evidence = sorter.evidence
    print(json.dumps({
        "program": NAME,
        "steps": steps,
        "us": statistics.median(times),
        "result": [evidence.sum().item(), evidence.pow(2).sum().item(), evidence[0, 0].item()],
    }))


if __name__ == "__main__":
    main()
