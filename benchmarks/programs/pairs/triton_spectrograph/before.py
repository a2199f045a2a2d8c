"""Calibration of echelle spectrograph exposures.

A night delivers sequences of 16 raw exposures of the same field.  Each raw
frame is corrected for dark current and pixel response; the calibrated frames
are kept in half precision and the mean and scatter of each pixel over the
sequence are written for the quality report.
"""
import json
import statistics
import time

import torch
import triton
import triton.language as tl

ROWS = 4096
COLUMNS = 8192
EXPOSURES = 16
SEQUENCES = 6
WARMUP = 12
BLOCK = 10
BLOCKS = 10


@triton.jit
def calibrate_kernel(
    raw_ptr, dark_ptr, gain_ptr, frame_ptr, mean_ptr, scatter_ptr,
    pixels, exposures: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):
    block = tl.program_id(0).to(tl.int64)
    offsets = block * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = offsets < pixels
    dark = tl.load(dark_ptr + offsets, mask=inside, other=0.0)
    gain = tl.load(gain_ptr + offsets, mask=inside, other=0.0)
    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    squares = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for k in tl.static_range(exposures):
        counts = tl.load(raw_ptr + k * pixels + offsets, mask=inside, other=0)
        value = (counts.to(tl.float32) - dark) * gain
        tl.store(frame_ptr + k * pixels + offsets, value.to(tl.float16), mask=inside)
        total += value
        squares += value * value
    mean = total / exposures
    variance = tl.maximum(squares / exposures - mean * mean, 0.0)
    tl.store(mean_ptr + offsets, mean, mask=inside)
    tl.store(scatter_ptr + offsets, tl.sqrt(variance), mask=inside)


class Calibrator:
    """Holds the calibration images and the output buffers of a night."""

    def __init__(self, dark, gain):
        self.dark = dark
        self.gain = gain
        self.pixels = dark.numel()
        self.frames = torch.empty((EXPOSURES, ROWS, COLUMNS), dtype=torch.float16, device=dark.device)
        self.mean = torch.empty_like(dark)
        self.scatter = torch.empty_like(dark)

    def __call__(self, raw):
        block_size = 1024
        grid = (triton.cdiv(self.pixels, block_size),)
        calibrate_kernel[grid](
            raw, self.dark, self.gain, self.frames, self.mean, self.scatter,
            self.pixels, exposures=EXPOSURES, BLOCK_SIZE=block_size, num_warps=4,
        )
        return self.frames, self.mean, self.scatter


def make_calibration(device):
    gen = torch.Generator(device=device).manual_seed(88)
    dark = 95.0 + 4.0 * torch.rand((ROWS, COLUMNS), device=device, generator=gen)
    gain = 0.9 + 0.2 * torch.rand((ROWS, COLUMNS), device=device, generator=gen)
    return dark, gain


def make_sequence(number, device):
    """Raw counts of one sequence: spectral orders on a noisy background."""
    gen = torch.Generator(device=device).manual_seed(500 + number)
    raw = torch.randint(80, 130, (EXPOSURES, ROWS, COLUMNS), dtype=torch.int16,
                        device=device, generator=gen)
    row = torch.arange(ROWS, device=device)
    order = (600.0 * torch.exp(-(((row % 64) - 32.0) / 6.0) ** 2)).to(torch.int16)
    raw += order[None, :, None]
    return raw


def check(calibrator, raw):
    """Compares a strip of the detector with a plain evaluation."""
    _, mean, scatter = calibrator(raw)
    strip = slice(1000, 1016)
    value = (raw[:, strip].float() - calibrator.dark[strip]) * calibrator.gain[strip]
    assert torch.allclose(mean[strip], value.mean(0), rtol=1e-3, atol=1e-2)
    assert torch.allclose(scatter[strip], value.std(0, unbiased=False), rtol=1e-2, atol=0.1)


def main():
    device = torch.device("cuda", 0)
    calibrator = Calibrator(*make_calibration(device))
    sequences = [make_sequence(n, device) for n in range(SEQUENCES)]
    check(calibrator, sequences[0])

    step = 0
    for _ in range(WARMUP):
        calibrator(sequences[step % SEQUENCES])
        step += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            frames, mean, scatter = calibrator(sequences[step % SEQUENCES])
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK * 1e6)

    result = [
        mean.double().mean().item(),
        scatter.double().mean().item(),
        frames[3, 2000].double().mean().item(),
    ]
    print(json.dumps({
        "program": "triton_spectrograph", "steps": step,
        "us": statistics.median(times), "result": result,
    }))


if __name__ == "__main__":
    main()
