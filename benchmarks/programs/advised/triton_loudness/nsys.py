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
BLOCKS = 10
STEPS_PER_BLOCK = 20
DEVICE = "cuda"


# The order of the programs: the first LEAD windows' energies, then, recording by
# recording, WINDOWS energies (LEAD ahead) followed by the WINDOWS windows of the
# recording to be scaled. A recording is so scaled while it still lies in the L2 cache.
WINDOWS = SAMPLES // WINDOW
LEAD = WINDOWS // 2


@triton.jit
def loudness_kernel(
    x_ptr,
    y_ptr,
    level_ptr,
    energy_ptr,
    count_ptr,
    emphasis,
    target,
    RECORDINGS: tl.constexpr,
    WINDOWS: tl.constexpr,
    WINDOW: tl.constexpr,
    LEAD: tl.constexpr,
):
    q = tl.program_id(0) - LEAD
    rec = tl.maximum(q, 0) // (2 * WINDOWS)
    w = q - rec * (2 * WINDOWS)
    if w < WINDOWS:
        e = LEAD + rec * WINDOWS + w
        if e < RECORDINGS * WINDOWS:
            owner = e // WINDOWS
            at = e * WINDOW + tl.arange(0, WINDOW)
            now = tl.load(x_ptr + at)
            before = tl.load(x_ptr + at - 1, mask=at > owner * (WINDOWS * WINDOW), other=0.0)
            d = now - emphasis * before
            part = tl.sum(d * d, axis=0)
            tl.atomic_add(energy_ptr + owner, part, sem="relaxed")
            tl.atomic_add(count_ptr + owner, 1, sem="release")
    else:
        window = rec * WINDOWS + w - WINDOWS
        t = window * WINDOW + tl.arange(0, WINDOW)
        x = tl.load(x_ptr + t, eviction_policy="evict_first")
        # the programs of this recording's energy have lower numbers: they run or have run
        while tl.atomic_add(count_ptr + rec, 0, sem="acquire") < WINDOWS:
            pass
        energy = tl.load(energy_ptr + rec, cache_modifier=".cg")
        gain = target / tl.sqrt(energy / (WINDOWS * WINDOW) + 1e-12)
        y = 2.0 / (1.0 + tl.exp(-2.0 * gain * x)) - 1.0
        tl.store(y_ptr + t, y, eviction_policy="evict_first")
        tl.store(level_ptr + window, tl.sum(y * y, axis=0))


@triton.jit
def collect_kernel(
    level_ptr,
    energy_ptr,
    count_ptr,
    gain_ptr,
    gains_ptr,
    loudest_ptr,
    target,
    WINDOWS: tl.constexpr,
    WINDOW: tl.constexpr,
):
    rec = tl.program_id(0)
    level = tl.load(level_ptr + rec * WINDOWS + tl.arange(0, WINDOWS))
    loud = tl.sqrt(tl.max(level, axis=0) / WINDOW)
    energy = tl.load(energy_ptr + rec)
    gain = target / tl.sqrt(energy / (WINDOWS * WINDOW) + 1e-12)
    tl.store(gain_ptr + rec, gain)
    tl.store(gains_ptr + rec, tl.load(gains_ptr + rec) + gain)
    tl.store(loudest_ptr + rec, tl.load(loudest_ptr + rec) + loud)
    # ready for the next step
    tl.store(energy_ptr + rec, 0.0)
    tl.store(count_ptr + rec, 0)


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

    level = torch.empty(RECORDINGS, WINDOWS, device=DEVICE)
    energy = torch.zeros(RECORDINGS, device=DEVICE)
    count = torch.zeros(RECORDINGS, dtype=torch.int32, device=DEVICE)

    def step(i):
        loudness_kernel[(LEAD + 2 * RECORDINGS * WINDOWS,)](
            batches[i % BATCHES],
            out,
            level,
            energy,
            count,
            EMPHASIS,
            TARGET,
            RECORDINGS=RECORDINGS,
            WINDOWS=WINDOWS,
            WINDOW=WINDOW,
            LEAD=LEAD,
            num_warps=8,
        )
        collect_kernel[(RECORDINGS,)](
            level,
            energy,
            count,
            gain,
            gains,
            loudest,
            TARGET,
            WINDOWS=WINDOWS,
            WINDOW=WINDOW,
            num_warps=1,
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
