"""Images (NCHW, fp32) scaled by a factor an image and shifted by a bias a channel."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

IMAGES, CHANNELS, PIXELS = 128, 96, 56 * 56


@triton.jit
def bias_flat(x, scale, bias, y, channels, pixels, BLOCK: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel = (where // pixels) % channels
    image = where // (pixels * channels)
    value = tl.load(x + where) * tl.load(scale + image) + tl.load(bias + channel)
    tl.store(y + where, value)


@triton.jit
def bias_plane(x, scale, bias, y, channels, pixels, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    pixel = tl.arange(0, BLOCK)
    inside = pixel < pixels
    start = plane.to(tl.int64) * pixels
    factor = tl.load(scale + plane // channels)
    value = tl.load(x + start + pixel, mask=inside) * factor + tl.load(bias + plane % channels)
    tl.store(y + start + pixel, value, mask=inside)


def inputs():
    torch.manual_seed(11)
    x = torch.randn(IMAGES, CHANNELS, PIXELS, device="cuda")
    return x, torch.rand(IMAGES, device="cuda"), torch.randn(CHANNELS, device="cuda")


def make(variant, x, scale, bias):
    y = torch.empty_like(x)

    def run():
        if variant == "before":
            bias_flat[(x.numel() // 1024,)](x, scale, bias, y, CHANNELS, PIXELS, 1024)
        else:
            bias_plane[(IMAGES * CHANNELS,)](x, scale, bias, y, CHANNELS, PIXELS, 4096, num_warps=8)

    return Work(run, lambda: y[::5].cpu().numpy())


PAIR = Pair(inputs, make, Launch("bias_(flat|plane)"), tolerance=1e-5)
