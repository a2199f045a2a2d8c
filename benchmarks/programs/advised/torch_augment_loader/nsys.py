"""Image classification with augmentation on the GPU, synthetic pictures."""

import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
PICTURES = 512
STORED = 160
CROP = 128
BATCH = 64
STEPS = 64
WARMUP = 16
BLOCK = 8
EAGER = 8  # steps before the step is recorded as a CUDA graph; less than WARMUP
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def make_pictures():
    """Pictures kept as bytes, on the GPU."""
    rng = np.random.default_rng(5)
    data = rng.integers(0, 256, (PICTURES, STORED, STORED, 3), dtype=np.uint8)
    return torch.from_numpy(data).to(DEVICE)


def augment(data, mean, std, i):
    """Crop, flip, light and colour set from the index, for a batch of indices."""
    across = torch.arange(CROP, device=i.device)
    top, left = (i * 7) % (STORED - CROP), (i * 13) % (STORED - CROP)
    rows = top[:, None] + across
    columns = left[:, None] + torch.where((i % 2 == 1)[:, None], CROP - 1 - across, across)
    image = data[(i % PICTURES)[:, None, None], rows[:, :, None], columns[:, None, :]]
    image = image.float() / 255.0
    gain = 0.8 + 0.4 * ((i * 29) % 64).float() / 64
    image = (image * gain[:, None, None, None]).clamp(0, 1)
    grey = image.mean(dim=3, keepdim=True)
    colour = 0.5 + ((i * 17) % 32).float() / 32
    image = (grey + colour[:, None, None, None] * (image - grey)).clamp(0, 1)
    image = (image - mean) / std
    return image.permute(0, 3, 1, 2), i % 10


def make_model():
    def stage(cin, cout):
        return [nn.Conv2d(cin, cout, 3, 2, 1), nn.BatchNorm2d(cout), nn.ReLU()]

    layers = stage(3, 32) + stage(32, 64) + stage(64, 128) + stage(128, 256)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def main():
    torch.manual_seed(5)
    model = make_model().to(DEVICE, memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = make_pictures()
    mean = torch.from_numpy(MEAN).to(DEVICE)
    std = torch.from_numpy(STD).to(DEVICE)
    index = torch.arange(BATCH, device=DEVICE)

    @torch.compile(dynamic=False)
    def forward(data, mean, std, index):
        images, labels = augment(data, mean, std, index)
        return images, F.cross_entropy(model(images), labels)

    def train():
        images, loss = forward(data, mean, std, index)
        loss.backward()
        opt.step()
        index.add_(BATCH)
        return images, loss

    times, sums, losses = [], [], []
    start = None
    graph = None
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for step in range(STEPS):
            if step < EAGER:
                opt.zero_grad(set_to_none=True)
                images, loss = train()
            else:
                if graph is None:  # within the warm-up: recorded, then replayed for each step
                    opt.zero_grad(set_to_none=True)
                    del images, loss
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=stream):
                        images, loss = train()
                graph.replay()
            if step < 4:
                sums.append(images.double().square().mean())
                losses.append(loss.detach().clone())
            if (step + 1) % BLOCK == 0:
                torch.cuda.synchronize()
                now = time.perf_counter()
                if start is not None and step >= WARMUP:
                    times.append((now - start) / BLOCK)
                start = now
    print(f"{BATCH / statistics.median(times):.0f} images/s, last loss {loss.item():.4f}")
    out = {
        "program": "torch_augment_loader",
        "steps": STEPS,
        "us": statistics.median(times) * 1e6,
        "result": [float(x) for x in sums[:2] + losses[:2]],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
