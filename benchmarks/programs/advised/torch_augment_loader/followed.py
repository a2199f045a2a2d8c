"""Image classification with augmentation on the GPU, synthetic pictures."""

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
PIXELS = 1024
STEPS = 64
WARMUP = 16
BLOCK = 8


@triton.jit
def augment_kernel(
    raw_ptr,
    out_ptr,
    first,
    STORED: tl.constexpr,
    CROP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Crop, flip, light, colour and normalise one block of pixels of one picture."""
    item = tl.program_id(1)
    i = first + item
    top = (i * 7) % (STORED - CROP)
    left = (i * 13) % (STORED - CROP)
    gain = 0.8 + 0.4 * ((i * 29) % 64).to(tl.float32) / 64
    colour = 0.5 + ((i * 17) % 32).to(tl.float32) / 32

    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < CROP * CROP
    row = pixel // CROP
    column = pixel % CROP
    source = tl.where(i % 2 != 0, CROP - 1 - column, column)
    raw = raw_ptr + ((item * STORED + top + row) * STORED + left + source) * 3
    r = tl.load(raw, mask=inside, other=0).to(tl.float32) / 255.0
    g = tl.load(raw + 1, mask=inside, other=0).to(tl.float32) / 255.0
    b = tl.load(raw + 2, mask=inside, other=0).to(tl.float32) / 255.0
    r = tl.minimum(r * gain, 1.0)
    g = tl.minimum(g * gain, 1.0)
    b = tl.minimum(b * gain, 1.0)
    grey = (r + g + b) / 3.0
    r = tl.minimum(tl.maximum(grey + colour * (r - grey), 0.0), 1.0)
    g = tl.minimum(tl.maximum(grey + colour * (g - grey), 0.0), 1.0)
    b = tl.minimum(tl.maximum(grey + colour * (b - grey), 0.0), 1.0)
    out = out_ptr + (item * CROP * CROP + pixel) * 3
    tl.store(out, (r - 0.485) / 0.229, mask=inside)
    tl.store(out + 1, (g - 0.456) / 0.224, mask=inside)
    tl.store(out + 2, (b - 0.406) / 0.225, mask=inside)


def augment(raw, first):
    """Pictures first, first + 1, ... as floats, channels last in memory."""
    out = torch.empty((raw.shape[0], CROP, CROP, 3), dtype=torch.float32, device=raw.device)
    grid = (triton.cdiv(CROP * CROP, PIXELS), raw.shape[0])
    augment_kernel[grid](raw, out, first, STORED, CROP, PIXELS)
    return out.permute(0, 3, 1, 2)


class Batches:
    """Pictures kept as bytes in pinned host memory; crop, flip, light and colour on the GPU.

    The bytes of the next batch are copied, on a stream of their own, during a step.
    """

    def __init__(self):
        assert PICTURES % BATCH == 0  # a batch is one piece of the store
        rng = np.random.default_rng(5)
        data = rng.integers(0, 256, (PICTURES, STORED, STORED, 3), dtype=np.uint8)
        self.data = torch.from_numpy(data).pin_memory()
        self.copies = torch.cuda.Stream()

    def fetch(self, step):
        at = step * BATCH % PICTURES
        with torch.cuda.stream(self.copies):
            raw = self.data[at : at + BATCH].to(DEVICE, non_blocking=True)
            ready = torch.cuda.Event()
            ready.record(self.copies)
        return raw, ready

    def __iter__(self):
        coming = self.fetch(0)
        for step in range(STEPS):
            raw, ready = coming
            if step + 1 < STEPS:
                coming = self.fetch(step + 1)
            stream = torch.cuda.current_stream()
            stream.wait_event(ready)
            raw.record_stream(stream)
            first = step * BATCH
            labels = torch.arange(first, first + BATCH, device=DEVICE) % 10
            yield augment(raw, first), labels


def make_model():
    def stage(cin, cout):
        return [nn.Conv2d(cin, cout, 3, 2, 1), nn.BatchNorm2d(cout), nn.ReLU()]

    layers = stage(3, 32) + stage(32, 64) + stage(64, 128) + stage(128, 256)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def main():
    torch.manual_seed(5)
    model = make_model().to(DEVICE, memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = Batches()
    times, sums, losses = [], [], []
    start = None
    for step, (images, labels) in enumerate(loader):
        loss = F.cross_entropy(model(images), labels)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step < 4:
            sums.append(images.double().square().mean())
            losses.append(loss.detach())
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
