"""Correction of light-sheet microscopy stacks.

A stack of camera planes is corrected for dark level, illumination profile and
the bleaching of each plane, variance-stabilised, and stored in half precision
for the archive. The brightness of the planes steers the gains of the next
stack of the time lapse.
"""
import json
import statistics
import time

import torch
import triton
import triton.language as tl

PROGRAM = "triton_lightsheet"
PLANES = 256
HEIGHT = 2048
WIDTH = 2048
PIXELS = HEIGHT * WIDTH
PLANE_TILE = 8
PIXEL_TILE = 512
TARGET = 600.0
WARMUP = 20
BLOCKS = 10
STEPS_PER_BLOCK = 10


@triton.jit
def correct_stack(raw_ptr, out_ptr, dark_ptr, profile_ptr, gain_ptr, partial_ptr,
                  pixels, tiles, PLANE_TILE: tl.constexpr, PIXEL_TILE: tl.constexpr):
    group = tl.program_id(0)
    tile = tl.program_id(1)
    planes = group * PLANE_TILE + tl.arange(0, PLANE_TILE)
    columns = tile * PIXEL_TILE + tl.arange(0, PIXEL_TILE)
    offsets = planes[:, None] * pixels + columns[None, :]
    raw = tl.load(raw_ptr + offsets).to(tl.float32)
    dark = tl.load(dark_ptr + columns)
    profile = tl.load(profile_ptr + columns)
    gain = tl.load(gain_ptr + planes)
    photons = (raw - dark[None, :]) * profile[None, :] * gain[:, None]
    photons = tl.maximum(photons, 0.0)
    stable = 2.0 * tl.sqrt(photons + 0.375)
    tl.store(out_ptr + offsets, stable.to(tl.float16))
    tl.store(partial_ptr + planes * tiles + tile, tl.sum(photons, axis=1))


def make_stack(generator, device, brightness):
    y = torch.linspace(-1.0, 1.0, HEIGHT, device=device)[:, None]
    x = torch.linspace(-1.0, 1.0, WIDTH, device=device)[None, :]
    raw = torch.empty(PLANES, HEIGHT, WIDTH, dtype=torch.int16, device=device)
    noise = torch.randn(HEIGHT, WIDTH, generator=generator, device=device)
    for plane in range(PLANES):
        depth = plane / PLANES
        tissue = torch.exp(-3.0 * ((x - 0.4 * depth) ** 2 + (y + 0.3 * depth) ** 2))
        signal = 120.0 + brightness * (1.0 - 0.5 * depth) * tissue + 12.0 * noise.roll(37 * plane, 1)
        raw[plane] = signal.clamp(0.0, 4095.0).to(torch.int16)
    return raw


class StackCorrector:
    def __init__(self, dark, profile, device):
        self.dark = dark.reshape(-1).contiguous()
        self.profile = profile.reshape(-1).contiguous()
        self.gain = torch.ones(PLANES, device=device)
        self.tiles = PIXELS // PIXEL_TILE
        self.partial = torch.empty(PLANES, self.tiles, device=device)
        self.archive = torch.empty(PLANES, HEIGHT, WIDTH, dtype=torch.float16, device=device)
        self.brightness = torch.zeros(PLANES, device=device)

    def __call__(self, raw):
        grid = (PLANES // PLANE_TILE, self.tiles)
        correct_stack[grid](raw, self.archive, self.dark, self.profile, self.gain, self.partial,
                            PIXELS, self.tiles, PLANE_TILE=PLANE_TILE, PIXEL_TILE=PIXEL_TILE,
                            num_warps=4)
        torch.sum(self.partial, dim=1, out=self.brightness)
        change = (TARGET * PIXELS / self.brightness).clamp_(0.8, 1.25)
        self.gain.mul_(change.pow_(0.3))


def main():
    device = torch.device("cuda")
    generator = torch.Generator(device=device).manual_seed(640)
    stacks = [make_stack(generator, device, level) for level in (1600.0, 2100.0)]
    dark = 100.0 + 5.0 * torch.rand(HEIGHT, WIDTH, generator=generator, device=device)
    profile = 0.8 + 0.4 * torch.rand(HEIGHT, WIDTH, generator=generator, device=device)
    corrector = StackCorrector(dark, profile, device)

    for index in range(WARMUP):
        corrector(stacks[index % 2])
    torch.cuda.synchronize()

    times = []
    index = WARMUP
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            corrector(stacks[index % 2])
            index += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    mean_brightness = (corrector.brightness / PIXELS).mean().item()
    middle = corrector.archive[PLANES // 2].float()
    result = [mean_brightness, corrector.gain.mean().item(), middle.mean().item(), middle.std().item()]
    print(json.dumps({"program": PROGRAM, "steps": index,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
