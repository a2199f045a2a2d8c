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
CHUNK = 32768  # samples of a recording summed by one program
GROUP = 4  # windows normalised by one program
BLOCKS = 10
STEPS_PER_BLOCK = 20
DEVICE = "cuda"


@triton.jit
def energy_kernel(x_ptr, partial_ptr, n, emphasis, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    chunk = tl.program_id(0)
    rec = tl.program_id(1)
    x_ptr += rec.to(tl.int64) * n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, CHUNK, BLOCK):
        t = chunk * CHUNK + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + t)
        before = tl.load(x_ptr + t - 1, mask=t > 0, other=0.0)
        d = x - emphasis * before
        total += d * d
    tl.store(partial_ptr + rec * tl.num_programs(0) + chunk, tl.sum(total, axis=0))


@triton.jit
def limit_kernel(
    x_ptr, y_ptr, partial_ptr, gain_ptr, level_ptr, n, target,
    CHUNKS: tl.constexpr, WINDOW: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    # Backwards, so that what the energy pass read last is still in L2.
    group = tl.num_programs(0) - 1 - tl.program_id(0)
    rec = tl.num_programs(1) - 1 - tl.program_id(1)
    x_ptr += rec.to(tl.int64) * n
    y_ptr += rec.to(tl.int64) * n
    total = tl.sum(tl.load(partial_ptr + rec * CHUNKS + tl.arange(0, CHUNKS)), axis=0)
    gain = target / tl.sqrt(total / n + 1e-12)
    if group == 0:
        tl.store(gain_ptr + rec, gain)
    for k in range(0, GROUP):
        window = group * GROUP + k
        t = window * WINDOW + tl.arange(0, WINDOW)
        x = tl.load(x_ptr + t, eviction_policy="evict_first")
        y = 2.0 * tl.sigmoid(2.0 * gain * x) - 1.0
        tl.store(y_ptr + t, y, eviction_policy="evict_first")
        level = tl.sqrt(tl.sum(y * y, axis=0) / WINDOW)
        tl.store(level_ptr + rec * (n // WINDOW) + window, level)


@triton.jit
def collect_kernel(level_ptr, gain_ptr, loudest_ptr, gains_ptr, WINDOWS: tl.constexpr):
    rec = tl.program_id(0)
    top = tl.max(tl.load(level_ptr + rec * WINDOWS + tl.arange(0, WINDOWS)), axis=0)
    tl.store(loudest_ptr + rec, tl.load(loudest_ptr + rec) + top)
    tl.store(gains_ptr + rec, tl.load(gains_ptr + rec) + tl.load(gain_ptr + rec))


def normalise(x, out, gain, level, partial):
    recordings, n = x.shape
    chunks = n // CHUNK
    energy_kernel[(chunks, recordings)](
        x, partial, n, EMPHASIS, CHUNK=CHUNK, BLOCK=BLOCK, num_warps=8
    )
    limit_kernel[(n // (WINDOW * GROUP), recordings)](
        x, out, partial, gain, level, n, TARGET,
        CHUNKS=chunks, WINDOW=WINDOW, GROUP=GROUP, num_warps=8,
    )  # fmt: skip


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
    level = torch.empty(RECORDINGS, SAMPLES // WINDOW, device=DEVICE)
    partial = torch.empty(RECORDINGS, SAMPLES // CHUNK, device=DEVICE)
    gains = torch.zeros(RECORDINGS, device=DEVICE)
    loudest = torch.zeros(RECORDINGS, device=DEVICE)

    def step(i):
        normalise(batches[i % BATCHES], out, gain, level, partial)
        collect_kernel[(RECORDINGS,)](
            level, gain, loudest, gains, WINDOWS=SAMPLES // WINDOW, num_warps=4
        )

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
