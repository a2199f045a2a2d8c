"""Loudness normalisation of long recordings with a soft limiter.

Each recording gets one gain from the mean square of its pre-emphasised signal;
the scaled signal is limited and the level of every short window is reported.
"""

import json
import math
import statistics
import time

import torch
import triton
import triton.language as tl

RECORDINGS = 16
SAMPLES = 1 << 22
BATCHES = 3
WINDOW = 4096
EMPHASIS = 0.85
TARGET = 0.12
BLOCK = 2048
BLOCKS = 10
STEPS_PER_BLOCK = 20
DEVICE = "cuda"


@triton.jit
def normalise_kernel(x_ptr, y_ptr, gain_ptr, n, emphasis, target, BLOCK: tl.constexpr):
    rec = tl.program_id(0).to(tl.int64)
    x_ptr += rec * n
    y_ptr += rec * n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        t = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + t, mask=t < n, other=0.0)
        before = tl.load(x_ptr + t - 1, mask=(t > 0) & (t < n), other=0.0)
        d = tl.where(t < n, x - emphasis * before, 0.0)
        total += d * d
    gain = target / tl.sqrt(tl.sum(total, axis=0) / n + 1e-12)
    tl.store(gain_ptr + rec, gain)
    for start in range(0, n, BLOCK):
        t = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + t, mask=t < n, other=0.0)
        y = 2.0 * tl.sigmoid(2.0 * gain * x) - 1.0
        tl.store(y_ptr + t, y, mask=t < n)


def normalise(x, out, gain):
    recordings, n = x.shape
    normalise_kernel[(recordings,)](x, out, gain, n, EMPHASIS, TARGET, BLOCK=BLOCK, num_warps=8)


def synthetic_recordings(generator):
    """Speech-like amplitude envelopes over coloured noise, different levels."""
    batches = []
    t = torch.arange(SAMPLES, device=DEVICE) / 44100.0
    for _ in range(BATCHES):
        noise = torch.randn(RECORDINGS, SAMPLES, generator=generator, device=DEVICE)
        noise[:, 1:] += 0.7 * noise[:, :-1]
        level = torch.rand(RECORDINGS, 1, generator=generator, device=DEVICE) * 0.3 + 0.02
        rate = torch.rand(RECORDINGS, 1, generator=generator, device=DEVICE) * 3.0 + 1.0
        envelope = 0.55 + 0.45 * torch.sin(2 * math.pi * rate * t)
        batches.append(noise * envelope * level)
    return batches


def main():
    torch.manual_seed(0)
    batches = synthetic_recordings(torch.Generator(DEVICE).manual_seed(12))
    out = torch.empty_like(batches[0])
    gain = torch.empty(RECORDINGS, device=DEVICE)
    gains = torch.zeros(RECORDINGS, device=DEVICE)
    loudest = torch.zeros(RECORDINGS, device=DEVICE)

    def step(i):
        normalise(batches[i % BATCHES], out, gain)
        windows = out.view(RECORDINGS, SAMPLES // WINDOW, WINDOW)
        level = torch.linalg.vector_norm(windows, dim=-1) / math.sqrt(WINDOW)
        loudest.add_(level.amax(dim=1))
        gains.add_(gain)

    done = 0
    for _ in range(6):
        step(done)
        done += 1
    times = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(done)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    checksum = ((loudest.mean() + gains.mean()) / done).item()
    print(
        json.dumps(
            {
                "program": "triton_loudness",
                "steps": done,
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
