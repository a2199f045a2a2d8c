"""Image classification with augmentation in a DataLoader, synthetic pictures."""

import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

DEVICE = "cuda"
PICTURES = 512
STORED = 160
CROP = 128
BATCH = 64
STEPS = 64
WARMUP = 16
BLOCK = 8
EAGER = 8  # steps before the graph is captured
PIXELS = 512
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


@triton.jit
def augment_kernel(
    stored, images, labels, first, STORED: tl.constexpr, CROP: tl.constexpr,
    PIXELS: tl.constexpr,
    M0: tl.constexpr, M1: tl.constexpr, M2: tl.constexpr,
    S0: tl.constexpr, S1: tl.constexpr, S2: tl.constexpr,
):
    """Crop, flip, light and colour set from the index; writes channels-last floats."""
    b = tl.program_id(0)
    i = first + b
    p = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    y = p // CROP
    x = p % CROP
    top = (i * 7) % (STORED - CROP)
    left = (i * 13) % (STORED - CROP)
    sx = left + tl.where(i % 2 == 1, CROP - 1 - x, x)
    src = stored + ((b * STORED + top + y) * STORED + sx) * 3
    gain = 0.8 + 0.4 * ((i * 29) % 64).to(tl.float32) / 64.0
    colour = 0.5 + ((i * 17) % 32).to(tl.float32) / 32.0
    r = tl.load(src).to(tl.float32) / 255.0
    g = tl.load(src + 1).to(tl.float32) / 255.0
    u = tl.load(src + 2).to(tl.float32) / 255.0
    r = tl.minimum(tl.maximum(r * gain, 0.0), 1.0)
    g = tl.minimum(tl.maximum(g * gain, 0.0), 1.0)
    u = tl.minimum(tl.maximum(u * gain, 0.0), 1.0)
    grey = (r + g + u) / 3.0
    r = tl.minimum(tl.maximum(grey + colour * (r - grey), 0.0), 1.0)
    g = tl.minimum(tl.maximum(grey + colour * (g - grey), 0.0), 1.0)
    u = tl.minimum(tl.maximum(grey + colour * (u - grey), 0.0), 1.0)
    dst = images + (b * CROP * CROP + p) * 3
    tl.store(dst, (r - M0) / S0)
    tl.store(dst + 1, (g - M1) / S1)
    tl.store(dst + 2, (u - M2) / S2)
    if tl.program_id(1) == 0:
        tl.store(labels + b, (i % 10).to(tl.int64))


class Batches:
    """Pictures kept as bytes in pinned host memory; a batch of bytes is uploaded for
    each step, one step ahead on a stream of its own, and augmented on the GPU."""

    def __init__(self, stream):
        rng = np.random.default_rng(5)
        data = rng.integers(0, 256, (PICTURES, STORED, STORED, 3), dtype=np.uint8)
        assert PICTURES % BATCH == 0  # so that a batch is a slice
        self.host = torch.from_numpy(data).pin_memory()
        self.stream = stream
        self.copier = torch.cuda.Stream()
        shape = (BATCH, STORED, STORED, 3)
        self.bytes = [torch.empty(shape, dtype=torch.uint8, device=DEVICE) for _ in range(2)]
        self.ready = [torch.cuda.Event() for _ in range(2)]
        self.free = [torch.cuda.Event() for _ in range(2)]
        self.images = torch.empty(BATCH, 3, CROP, CROP, device=DEVICE).to(
            memory_format=torch.channels_last
        )
        self.labels = torch.empty(BATCH, dtype=torch.int64, device=DEVICE)
        torch.cuda.synchronize()
        self.upload(0)

    def upload(self, step):
        slot = step % 2
        first = step * BATCH % PICTURES
        if step >= 2:
            self.copier.wait_event(self.free[slot])
        with torch.cuda.stream(self.copier):
            self.bytes[slot].copy_(self.host[first : first + BATCH], non_blocking=True)
        self.ready[slot].record(self.copier)

    def load(self, step):
        """Fills images and labels with the batch of this step (on the current stream)."""
        slot = step % 2
        self.stream.wait_event(self.ready[slot])
        augment_kernel[(BATCH, CROP * CROP // PIXELS)](
            self.bytes[slot], self.images, self.labels, step * BATCH,
            STORED, CROP, PIXELS, *MEAN, *STD, num_warps=4,
        )
        self.free[slot].record(self.stream)
        if step + 1 < STEPS:
            self.upload(step + 1)


def make_model():
    def stage(cin, cout):
        return [nn.Conv2d(cin, cout, 3, 2, 1), nn.BatchNorm2d(cout), nn.ReLU()]

    layers = stage(3, 32) + stage(32, 64) + stage(64, 128) + stage(128, 256)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def main():
    torch.manual_seed(5)
    torch.backends.cudnn.benchmark = True
    model = make_model().to(DEVICE).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    batches = Batches(stream)
    images, labels = batches.images, batches.labels

    def train():
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        opt.step()
        return loss.detach()

    times, sums, losses = [], [], []
    start = None
    graph = None
    with torch.cuda.stream(stream):
        for step in range(STEPS):
            batches.load(step)
            if step < EAGER:
                loss = train()
            else:
                if graph is None:  # still within the warm-up; capturing runs nothing
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=stream):
                        loss = train()
                graph.replay()
            if step < 4:
                sums.append(images.double().square().mean())
                losses.append(loss)
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
