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
CHUNK = 16384
BLOCK = 4096
BLOCKS = 10
STEPS_PER_BLOCK = 20
DEVICE = "cuda"


@triton.jit
def power_kernel(x_ptr, part_ptr, n, emphasis, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    """Sum of squares of the pre-emphasised signal, for one chunk of one recording."""
    chunk = tl.program_id(0)
    rec = tl.program_id(1).to(tl.int64)
    x_ptr += rec * n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, CHUNK, BLOCK):
        t = chunk * CHUNK + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + t, mask=t < n, other=0.0)
        before = tl.load(x_ptr + t - 1, mask=(t > 0) & (t < n), other=0.0)
        d = tl.where(t < n, x - emphasis * before, 0.0)
        total += d * d
    tl.store(part_ptr + rec * tl.num_programs(0) + chunk, tl.sum(total, axis=0))


@triton.jit
def limit_kernel(
    x_ptr,
    y_ptr,
    part_ptr,
    gain_ptr,
    level_ptr,
    n,
    target,
    parts,
    PARTS: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Gain from the parts; scale and limit one window and take its level.

    Last window first: the cache still holds the end of what power_kernel read.
    """
    window = tl.num_programs(0) - 1 - tl.program_id(0)
    rec = (tl.num_programs(1) - 1 - tl.program_id(1)).to(tl.int64)
    t = window * WINDOW + tl.arange(0, WINDOW)
    x = tl.load(x_ptr + rec * n + t)
    p = tl.arange(0, PARTS)
    part = tl.load(part_ptr + rec * parts + p, mask=p < parts, other=0.0)
    gain = target / tl.sqrt(tl.sum(part, axis=0) / n + 1e-12)
    if window == 0:
        tl.store(gain_ptr + rec, gain)
    y = 2.0 * tl.sigmoid(2.0 * gain * x) - 1.0
    tl.store(y_ptr + rec * n + t, y, eviction_policy="evict_first")
    level = tl.sqrt(tl.sum(y * y, axis=0) / WINDOW)
    tl.store(level_ptr + rec * tl.num_programs(0) + window, level)


def normalise(x, out, gain, part, level):
    recordings, n = x.shape
    parts = part.shape[1]
    power_kernel[(parts, recordings)](x, part, n, EMPHASIS, CHUNK=CHUNK, BLOCK=BLOCK, num_warps=8)
    limit_kernel[(n // WINDOW, recordings)](
        x,
        out,
        part,
        gain,
        level,
        n,
        TARGET,
        parts,
        PARTS=triton.next_power_of_2(parts),
        WINDOW=WINDOW,
        num_warps=8,
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
    part = torch.empty(RECORDINGS, triton.cdiv(SAMPLES, CHUNK), device=DEVICE)
    level = torch.empty(RECORDINGS, SAMPLES // WINDOW, device=DEVICE)
    gains = torch.zeros(RECORDINGS, device=DEVICE)
    loudest = torch.zeros(RECORDINGS, device=DEVICE)

    def step(i):
        normalise(batches[i % BATCHES], out, gain, part, level)
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
