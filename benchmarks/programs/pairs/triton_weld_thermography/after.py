"""Active thermography of weld seams.

A camera films the cooling of each flashed part. For every pixel the cooling
curve is smoothed recursively and its contrast against sound material is
reduced to a defect map: strongest contrast, the frame it occurs in, and the
accumulated contrast.
"""
import json
import time

import torch
import triton
import triton.language as tl

NAME = "triton_weld_thermography"
HEIGHT = 1024
WIDTH = 1024
FRAMES = 160
PARTS = 3
SMOOTHING = 0.25
BLOCK = 256
WARMUP = 20
BLOCKS = 10
PER_BLOCK = 10


@triton.jit
def contrast_kernel(stack_ptr, sound_ptr, peak_ptr, when_ptr, total_ptr,
                    pixels, smoothing,
                    FRAMES: tl.constexpr, BLOCK: tl.constexpr):
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    level = tl.zeros((BLOCK,), dtype=tl.float32)
    peak = tl.zeros((BLOCK,), dtype=tl.float32)
    when = tl.zeros((BLOCK,), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, FRAMES, 4):
        for k in tl.static_range(4):
            t = first + k
            value = tl.load(stack_ptr + t * pixels + pixel, mask=inside, other=0.0)
            sound = tl.load(sound_ptr + t)
            level = level + smoothing * (value - sound - level)
            higher = level > peak
            peak = tl.where(higher, level, peak)
            when = tl.where(higher, t * 1.0, when)
            total = total + level
    tl.store(peak_ptr + pixel, peak, mask=inside)
    tl.store(when_ptr + pixel, when, mask=inside)
    tl.store(total_ptr + pixel, total, mask=inside)


def defect_mask(generator, device):
    """Depth-like strength of hidden pores, zero in sound material."""
    yy = torch.arange(HEIGHT, device=device, dtype=torch.float32).view(-1, 1)
    xx = torch.arange(WIDTH, device=device, dtype=torch.float32).view(1, -1)
    mask = torch.zeros(HEIGHT, WIDTH, device=device)
    spots = torch.rand(24, 3, generator=generator, device=device)
    for cy, cx, size in spots:
        radius2 = (6.0 + 30.0 * size) ** 2
        mask += torch.exp(-((yy - cy * HEIGHT) ** 2 + (xx - cx * WIDTH) ** 2) / radius2)
    return mask.reshape(-1).clamp(max=1.0)


def record_part(sound, generator, device):
    """Film one part; the stack holds the whole image of every frame."""
    pixels = HEIGHT * WIDTH
    strength = defect_mask(generator, device)
    stack = torch.empty(FRAMES, pixels, device=device)
    for t in range(FRAMES):
        delay = t / FRAMES
        bump = 4.0 * delay * (1.0 - delay) ** 2
        noise = torch.randn(pixels, generator=generator, device=device)
        stack[t] = sound[t] + bump * strength + 0.02 * noise
    return stack


def main():
    device = torch.device("cuda")
    generator = torch.Generator(device=device).manual_seed(12)
    times_s = torch.arange(1, FRAMES + 1, device=device, dtype=torch.float32) / 60.0
    sound = 8.0 * times_s.rsqrt()
    parts = [record_part(sound, generator, device) for _ in range(PARTS)]

    pixels = HEIGHT * WIDTH
    peak = torch.empty(pixels, device=device)
    when = torch.empty(pixels, device=device)
    total = torch.empty(pixels, device=device)
    grid = (triton.cdiv(pixels, BLOCK),)

    def inspect(n):
        contrast_kernel[grid](parts[n % PARTS], sound, peak, when, total,
                              pixels, SMOOTHING, FRAMES=FRAMES, BLOCK=BLOCK, num_warps=4)

    steps = 0
    for _ in range(WARMUP):
        inspect(steps)
        steps += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            inspect(steps)
            steps += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    result = [float(peak.double().mean()), float(when.double().mean()),
              float(total.double().abs().mean())]
    times.sort()
    print(json.dumps({"program": NAME, "steps": steps, "us": times[len(times) // 2], "result": result}))


if __name__ == "__main__":
    main()
