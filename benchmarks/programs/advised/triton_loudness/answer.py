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
BLOCK = 4096
PARTS = 128  # parts of a recording, for its sum of squares
BLOCKS = 10
STEPS_PER_BLOCK = 20
DEVICE = "cuda"


@triton.jit
def energy_kernel(
    x_ptr, part_ptr, n, emphasis, PARTS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Sum of squares of the pre-emphasised signal, for one part of one recording."""
    rec = tl.program_id(1).to(tl.int64)
    part = tl.program_id(0)
    x_ptr += rec * n
    first = part * LENGTH
    total = tl.zeros((BLOCK // 4,), dtype=tl.float32)
    for start in range(0, LENGTH, BLOCK):
        t = first + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + t)
        t4 = first + start + 4 * tl.arange(0, BLOCK // 4)
        before = tl.load(x_ptr + t4 - 1, mask=t4 > 0, other=0.0)
        even, odd = tl.split(tl.reshape(x, (BLOCK // 4, 2, 2)))
        x0, x2 = tl.split(even)
        x1, x3 = tl.split(odd)
        d0 = x0 - emphasis * before
        d1 = x1 - emphasis * x0
        d2 = x2 - emphasis * x1
        d3 = x3 - emphasis * x2
        total += d0 * d0 + d1 * d1 + (d2 * d2 + d3 * d3)
    tl.store(part_ptr + rec * PARTS + part, tl.sum(total, axis=0))


@triton.jit
def limit_kernel(
    x_ptr,
    y_ptr,
    part_ptr,
    square_ptr,
    n,
    target,
    PARTS: tl.constexpr,
    WINDOWS: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Scale and limit one window; its sum of squares. Last windows first: they are still in L2."""
    rec = (tl.num_programs(1) - 1 - tl.program_id(1)).to(tl.int64)
    window = WINDOWS - 1 - tl.program_id(0)
    t = rec * n + window * WINDOW + tl.arange(0, WINDOW)
    x = tl.load(x_ptr + t, eviction_policy="evict_first")
    total = tl.sum(tl.load(part_ptr + rec * PARTS + tl.arange(0, PARTS)), axis=0)
    gain = target / tl.sqrt(total / n + 1e-12)
    y = 2.0 * tl.sigmoid(2.0 * gain * x) - 1.0
    tl.store(y_ptr + t, y, eviction_policy="evict_first")
    tl.store(square_ptr + rec * WINDOWS + window, tl.sum(y * y, axis=0))


@triton.jit
def report_kernel(
    part_ptr,
    square_ptr,
    gain_ptr,
    gains_ptr,
    loudest_ptr,
    n,
    target,
    PARTS: tl.constexpr,
    WINDOWS: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Gain of a recording, and the level of its loudest window, each added to its sum."""
    rec = tl.program_id(0)
    total = tl.sum(tl.load(part_ptr + rec * PARTS + tl.arange(0, PARTS)), axis=0)
    gain = target / tl.sqrt(total / n + 1e-12)
    square = tl.max(tl.load(square_ptr + rec * WINDOWS + tl.arange(0, WINDOWS)), axis=0)
    tl.store(gain_ptr + rec, gain)
    tl.store(gains_ptr + rec, tl.load(gains_ptr + rec) + gain)
    tl.store(loudest_ptr + rec, tl.load(loudest_ptr + rec) + tl.sqrt(square / WINDOW))


def normalise(x, out, gain, gains, loudest, parts, squares):
    recordings, n = x.shape
    windows = n // WINDOW
    energy_kernel[(PARTS, recordings)](
        x, parts, n, EMPHASIS, PARTS=PARTS, LENGTH=n // PARTS, BLOCK=BLOCK, num_warps=8
    )
    limit_kernel[(windows, recordings)](
        x, out, parts, squares, n, TARGET, PARTS=PARTS, WINDOWS=windows, WINDOW=WINDOW, num_warps=8
    )
    report_kernel[(recordings,)](
        parts,
        squares,
        gain,
        gains,
        loudest,
        n,
        TARGET,
        PARTS=PARTS,
        WINDOWS=windows,
        WINDOW=WINDOW,
        num_warps=4,
    )


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
    parts = torch.empty(RECORDINGS, PARTS, device=DEVICE)
    squares = torch.empty(RECORDINGS, SAMPLES // WINDOW, device=DEVICE)

    def step(i):
        normalise(batches[i % BATCHES], out, gain, gains, loudest, parts, squares)

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
