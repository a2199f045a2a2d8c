"""Train a small residual network; log the norm of every gradient each step."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
SIZE = 32
WIDTH = 64
BLOCKS_PER_STAGE = 4
CLASSES = 10
BATCH = 128
CLIP = 1.0
WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 8


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(cout)
        self.c2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(cout)
        self.skip = nn.Identity()
        if cin != cout:
            self.skip = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)))
        return F.relu(self.b2(self.c2(y)) + self.skip(x))


def make_model():
    layers = [nn.Conv2d(3, WIDTH, 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU()]
    c = WIDTH
    for stage in range(3):
        for i in range(BLOCKS_PER_STAGE):
            out = WIDTH << stage
            layers.append(Residual(c, out, 2 if stage and i == 0 else 1))
            c = out
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, CLASSES)]
    return nn.Sequential(*layers)


def clip_gradients(model):
    """Clip by the total norm; return it."""
    total = 0.0
    for p in model.parameters():
        total += p.grad.norm().item() ** 2
    total = total**0.5
    if total > CLIP:
        for p in model.parameters():
            p.grad.mul_(CLIP / (total + 1e-6))
    return total


def main():
    torch.manual_seed(4)
    torch.backends.cudnn.benchmark = True
    model = make_model().to(DEVICE).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=True)
    images = torch.randn(8, BATCH, 3, SIZE, SIZE).to(DEVICE)
    labels = torch.randint(0, CLASSES, (8, BATCH)).to(DEVICE)
    count = 0
    norms = []

    def train_step():
        nonlocal count
        x = images[count % 8].contiguous(memory_format=torch.channels_last)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), labels[count % 8])
        count += 1
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norms.append(clip_gradients(model))
        opt.step()
        return loss

    first = train_step()
    for _ in range(WARMUP):
        train_step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            loss = train_step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    print(f"loss {first.item():.4f} -> {loss.item():.4f}")
    print("gradient norms:", " ".join(f"{float(x):.3f}" for x in norms[:8]))
    out = {
        "program": "torch_cnn_gradnorm",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [first.item(), float(norms[0]), float(norms[1])],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
