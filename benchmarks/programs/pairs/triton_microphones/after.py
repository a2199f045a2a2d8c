"""Level statistics of long multi-microphone takes: RMS, peak, crest factor and kurtosis per channel."""
import json
import statistics
import time

import torch
import triton
import triton.language as tl

CHANNELS = 12
SAMPLES = 48_000 * 90
TAKES = 8
WARMUP = 6
REPEATS = 5
GROUPS = 8
MOMENTS = 4
PARTS = 88                # spans of a channel


@triton.jit
def channel_moments(audio, partial, samples, channel_stride, span, BLOCK: tl.constexpr):
    """Sum, sum of squares, sum of fourth powers and peak of one span of a channel."""
    channel = tl.program_id(0)
    part = tl.program_id(1)
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    fourth = tl.zeros((BLOCK,), dtype=tl.float32)
    peak = tl.zeros((BLOCK,), dtype=tl.float32)
    row = audio + channel.to(tl.int64) * channel_stride
    begin = part * span
    end = tl.minimum(begin + span, samples)
    for first in range(begin, end, BLOCK):
        index = first + lane
        value = tl.load(row + index, mask=index < end, other=0.0)
        energy = value * value
        total += value
        square += energy
        fourth += energy * energy
        peak = tl.maximum(peak, tl.abs(value))
    out = partial + (channel * tl.num_programs(1) + part) * 4
    tl.store(out, tl.sum(total, axis=0))
    tl.store(out + 1, tl.sum(square, axis=0))
    tl.store(out + 2, tl.sum(fourth, axis=0))
    tl.store(out + 3, tl.max(peak, axis=0))


def take_moments(audio):
    """audio: channels x samples, float32; returns channels x PARTS x MOMENTS."""
    channels, samples = audio.shape
    span = triton.cdiv(triton.cdiv(samples, PARTS), 4096) * 4096
    partial = torch.empty(channels, PARTS, MOMENTS, device=audio.device)
    channel_moments[(channels, PARTS)](audio, partial, samples, audio.stride(0), span,
                                       BLOCK=4096, num_warps=8)
    return partial


def levels(moments, samples):
    mean = moments[:, 0] / samples
    variance = moments[:, 1] / samples - mean * mean
    rms = (moments[:, 1] / samples).sqrt()
    crest = moments[:, 3] / rms
    kurtosis = moments[:, 2] / samples / variance.square()
    return torch.stack([rms, moments[:, 3], crest, kurtosis], dim=1)


def synthetic_take(seed):
    """Band of noise with a slow swell, channel gains and a few clicks."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    clock = torch.arange(SAMPLES, device="cuda") / 48_000
    swell = 0.6 + 0.4 * torch.sin(0.7 * clock + seed)
    gain = torch.linspace(0.3, 1.0, CHANNELS, device="cuda").unsqueeze(1)
    audio = 0.1 * torch.randn(CHANNELS, SAMPLES, device="cuda", generator=generator)
    audio += 0.2 * torch.sin(2 * torch.pi * (100.0 + 5 * seed) * clock)
    audio *= swell * gain
    clicks = torch.randint(0, SAMPLES, (40,), device="cuda", generator=generator)
    audio[:, clicks] *= 4.0
    return audio


class LevelReport:
    """Runs over all takes of a session and keeps the table of levels on the GPU."""

    def __init__(self, takes):
        self.takes = takes
        self.table = torch.zeros(len(takes), CHANNELS, 4, device="cuda")

    def update(self):
        partial = torch.stack([take_moments(take) for take in self.takes])
        moments = torch.cat([partial[..., :3].sum(dim=2), partial[..., 3:].amax(dim=2)], dim=-1)
        self.table.copy_(levels(moments.view(-1, MOMENTS), SAMPLES).view_as(self.table))


def main():
    report = LevelReport([synthetic_take(seed) for seed in range(TAKES)])
    for _ in range(WARMUP):
        report.update()
    torch.cuda.synchronize()

    times = []
    for _ in range(GROUPS):
        start = time.perf_counter()
        for _ in range(REPEATS):
            report.update()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / REPEATS)

    result = report.table.double().mean(dim=(0, 1)).tolist()
    print(json.dumps({"program": "triton_microphones", "steps": WARMUP + REPEATS * GROUPS,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
