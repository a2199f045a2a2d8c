"""Quality figures of long geophone recordings.

24 channels of a seismic crew's overnight noise test.  For every channel we
want the mean, RMS and largest excursion after a gain correction, each time
the gains have been refined.
"""
import json
import statistics
import time

import torch
import triton
import triton.language as tl

NAME = "triton_geophone_stats"
DEVICE = "cuda"
CHANNELS = 24
SAMPLES = 8 * 1024 * 1024
BLOCK = 2048
PARTS = 64
PART = SAMPLES // PARTS
WARMUP = 6
BLOCKS = 8
PER_BLOCK = 4


@triton.jit
def channel_stats(trace_ptr, gain_ptr, out_ptr, samples, part_samples, BLOCK: tl.constexpr):
    """Sum, sum of squares and peak of one part of a corrected channel."""
    channel = tl.program_id(0)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    gain = tl.load(gain_ptr + channel)
    base = trace_ptr + channel.to(tl.int64) * samples
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    power = tl.zeros((BLOCK,), dtype=tl.float32)
    peak = tl.zeros((BLOCK,), dtype=tl.float32)
    lane = tl.arange(0, BLOCK)
    first = part * part_samples
    for start in range(0, part_samples, BLOCK):
        offset = first + start + lane
        x = tl.load(base + offset, mask=offset < samples, other=0.0) * gain
        total += x
        power += x * x
        peak = tl.maximum(peak, tl.abs(x))
    row = out_ptr + (channel * parts + part) * 3
    tl.store(row + 0, tl.sum(total, axis=0))
    tl.store(row + 1, tl.sum(power, axis=0))
    tl.store(row + 2, tl.max(peak, axis=0))


def make_recording():
    """Coloured noise with some bursts, one channel after another."""
    generator = torch.Generator(device=DEVICE).manual_seed(24)
    traces = torch.empty(CHANNELS, SAMPLES, device=DEVICE)
    for channel in range(CHANNELS):
        noise = torch.randn(SAMPLES, generator=generator, device=DEVICE)
        noise += 0.25
        noise[1000 * channel + 500:1000 * channel + 700] *= 6.0
        traces[channel] = noise * (0.5 + 0.05 * channel)
    return traces


def measure(traces, gains, out):
    """Mean, RMS and peak of every channel."""
    channel_stats[(CHANNELS, PARTS)](traces, gains, out, SAMPLES, PART, BLOCK=BLOCK, num_warps=8)
    total = out.sum(dim=1)
    mean = total[:, 0] / SAMPLES
    rms = torch.sqrt(total[:, 1] / SAMPLES)
    return mean, rms, out[:, :, 2].amax(dim=1)


def refine(gains, rms):
    """Move the gains so that all channels get the same RMS."""
    return gains * (1.0 + 0.2 * (1.0 / rms - 1.0))


def main():
    traces = make_recording()
    gains = torch.ones(CHANNELS, device=DEVICE)
    out = torch.empty(CHANNELS, PARTS, 3, device=DEVICE)

    steps = 0
    for _ in range(WARMUP):
        mean, rms, peak = measure(traces, gains, out)
        gains = refine(gains, rms)
        steps += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(PER_BLOCK):
            mean, rms, peak = measure(traces, gains, out)
            gains = refine(gains, rms)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / PER_BLOCK)
        steps += PER_BLOCK

    print(json.dumps({"program": NAME, "steps": steps,
                      "us": statistics.median(times) * 1e6,
                      "result": [mean.mean().item(), rms.mean().item(),
                                 peak.max().item(), gains.mean().item()]}))


if __name__ == "__main__":
    main()
