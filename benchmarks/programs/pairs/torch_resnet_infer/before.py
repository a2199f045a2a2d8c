"""Batch inference of a ResNet-like network, half precision, channels last, CUDA graph."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
BATCH = 128
SIZE = 224
STAGES = [(64, 2), (128, 2), (256, 2), (512, 2)]
WARMUP = 5
BLOCKS = 8
STEPS_PER_BLOCK = 10


class Basic(nn.Module):
    """Two convolutions; batch norm is folded into them already."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1 = nn.Conv2d(cin, cout, 3, stride, 1)
        self.c2 = nn.Conv2d(cout, cout, 3, 1, 1)
        self.skip = nn.Conv2d(cin, cout, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu_(self.c1(x))
        return F.relu_(self.c2(y).add_(self.skip(x)))


def make_model():
    layers = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    cin = 64
    for stage, (width, depth) in enumerate(STAGES):
        for i in range(depth):
            layers.append(Basic(cin, width, 2 if stage and i == 0 else 1))
            cin = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000))


@torch.inference_mode()
def main():
    torch.manual_seed(16)
    torch.backends.cudnn.benchmark = True
    model = make_model().to(DEVICE).half().eval().to(memory_format=torch.channels_last)
    images = torch.randn(BATCH, 3, SIZE, SIZE).to(DEVICE).half()
    images = images.contiguous(memory_format=torch.channels_last)
    for _ in range(WARMUP):
        model(images)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = model(images)
    for _ in range(WARMUP):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    print(f"{BATCH / statistics.median(times):.0f} images/s")
    print("first logits:", " ".join(f"{x:.4f}" for x in logits[0, :5].tolist()))
    out = {
        "program": "torch_resnet_infer",
        "steps": 2 * WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [logits.float().abs().mean().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
