"""Histograms of camera frames with Triton, for automatic exposure."""

import json
import statistics
import time

import torch
import triton
import triton.language as tl

DEVICE = "cuda"
HEIGHT = 4096
WIDTH = 6144
BINS = 256
FRAMES = 4
BLOCK = 1024
WARMUP = 5
BLOCKS = 6
STEPS_PER_BLOCK = 8


@triton.jit
def histogram(image_ptr, gain, out_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n
    value = tl.load(image_ptr + place, mask=mask, other=0).to(tl.float32) * gain
    level = tl.minimum(value, 255.0).to(tl.int32)
    tl.atomic_add(out_ptr + level, 1, mask=mask)


def count_levels(image, gain, out):
    n = image.numel()
    histogram[(triton.cdiv(n, BLOCK),)](image, gain, out, n, BLOCK=BLOCK)


def make_frames():
    g = torch.Generator().manual_seed(43)
    frames = []
    for _ in range(FRAMES):
        sky = torch.randn(HEIGHT // 8, WIDTH, generator=g) * 6 + 60
        frames.append(sky.repeat(8, 1).clamp(0, 255).to(torch.uint8).to(DEVICE))
    return frames


def main():
    frames = make_frames()
    out = torch.zeros(FRAMES, BINS, dtype=torch.int32, device=DEVICE)
    count = 0

    def step():
        nonlocal count
        count += 1
        out.zero_()
        for i, frame in enumerate(frames):
            count_levels(frame, 1.0 + 0.1 * i, out[i])
        return out.float().cumsum(1)

    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    levels = torch.arange(BINS, device=DEVICE)
    mean = (out.double() * levels).sum(1) / out.sum(1)
    print("mean levels:", " ".join(f"{m:.2f}" for m in mean.tolist()))
    result = {
        "program": "triton_image_histogram",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [*mean.tolist(), float(out[0, 60]), float(out.sum())],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
