"""Genome encoder: gated linear recurrences between projections, on long windows of bases."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

DEVICE = "cuda"
WINDOWS = 8
LENGTH = 4096
WIDTH = 1024
LAYERS = 3
SETS = 3
WARMUP = 4
BLOCKS = 8
STEPS_PER_BLOCK = 16


CHUNK = 64


@triton.jit
def coefficients(r, i, v, rate):
    a = tl.exp(rate * tl.sigmoid(r.to(tl.float32)))
    b = tl.sqrt(1.0 - a * a) * tl.sigmoid(i.to(tl.float32)) * v.to(tl.float32)
    return a, b


@triton.jit
def summary_kernel(
    gates,
    decay,
    products,
    ends,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Product of a, and the h that a chunk makes from h = 0."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chunk = tl.program_id(1)
    window = tl.program_id(2)
    rate = tl.load(decay + channel)
    row = gates + (window.to(tl.int64) * LENGTH + chunk * CHUNK) * (4 * WIDTH) + channel
    r = tl.load(row)
    i = tl.load(row + WIDTH)
    v = tl.load(row + 2 * WIDTH)
    h = tl.zeros([BLOCK], dtype=tl.float32)
    product = tl.full([BLOCK], 1.0, dtype=tl.float32)
    for t in range(CHUNK):
        ahead = row + tl.minimum(t + 1, CHUNK - 1) * (4 * WIDTH)
        next_r = tl.load(ahead)
        next_i = tl.load(ahead + WIDTH)
        next_v = tl.load(ahead + 2 * WIDTH)
        a, b = coefficients(r, i, v, rate)
        h = a * h + b
        product = product * a
        r = next_r
        i = next_i
        v = next_v
    place = (window * (LENGTH // CHUNK) + chunk) * WIDTH + channel
    tl.store(products + place, product)
    tl.store(ends + place, h)


@triton.jit
def apply_kernel(
    gates,
    decay,
    products,
    ends,
    out,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """h = a h + sqrt(1 - a^2) i v along a chunk, times gelu of the branch.

    gates holds r, i, v and the branch side by side.
    """
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # The other way round than summary_kernel: what it read last may still be in L2.
    chunk = tl.num_programs(1) - 1 - tl.program_id(1)
    window = tl.num_programs(2) - 1 - tl.program_id(2)
    rate = tl.load(decay + channel)
    first = window.to(tl.int64) * LENGTH + chunk * CHUNK
    row = gates + first * (4 * WIDTH) + channel
    target = out + first * WIDTH + channel
    r = tl.load(row)
    i = tl.load(row + WIDTH)
    v = tl.load(row + 2 * WIDTH)
    g = tl.load(row + 3 * WIDTH)
    h = tl.zeros([BLOCK], dtype=tl.float32)
    place = window * (LENGTH // CHUNK) * WIDTH + channel
    for start in range(0, chunk, 8):
        for k in tl.static_range(8):
            earlier = start + k
            at = place + tl.minimum(earlier, chunk - 1) * WIDTH
            product = tl.load(products + at)
            end = tl.load(ends + at)
            h = tl.where(earlier < chunk, product * h + end, h)
    for t in range(CHUNK):
        ahead = row + tl.minimum(t + 1, CHUNK - 1) * (4 * WIDTH)
        next_r = tl.load(ahead)
        next_i = tl.load(ahead + WIDTH)
        next_v = tl.load(ahead + 2 * WIDTH)
        next_g = tl.load(ahead + 3 * WIDTH)
        a, b = coefficients(r, i, v, rate)
        h = a * h + b
        x = g.to(tl.float32)
        y = h * (0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)))
        tl.store(target + t * WIDTH, y.to(tl.bfloat16))
        r = next_r
        i = next_i
        v = next_v
        g = next_g


def gated_recurrence(gates, decay):
    windows, length, width = gates.shape[0], gates.shape[1], gates.shape[2] // 4
    out = torch.empty(windows, length, width, device=gates.device, dtype=gates.dtype)
    chunks = length // CHUNK
    sums = torch.empty(2, windows, chunks, width, device=gates.device, dtype=torch.float32)
    block = 256
    grid = (width // block, chunks, windows)
    summary_kernel[grid](gates, decay, sums[0], sums[1], length, width, CHUNK, block, num_warps=2)
    apply_kernel[grid](gates, decay, sums[0], sums[1], out, length, width, CHUNK, block, num_warps=2)
    return out


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.gates = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.branch = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("decay", -8 * F.softplus(torch.linspace(-6, -1, WIDTH)))

    def join(self):
        """One projection makes the gates and the branch."""
        self.register_buffer("joined", torch.cat([self.gates.weight, self.branch.weight]).detach())

    def forward(self, x):
        """Adds to x in place."""
        y = self.norm(x)
        h = gated_recurrence(F.linear(y, self.joined), self.decay)
        x.view(-1, WIDTH).addmm_(h.view(-1, WIDTH), self.out.weight.t())
        return x


@torch.inference_mode()
def main():
    torch.manual_seed(51)
    embed = nn.Embedding(5, WIDTH).to(DEVICE).bfloat16()
    layers = [Layer().to(DEVICE) for _ in range(LAYERS)]
    for layer in layers:
        for part in (layer.norm, layer.gates, layer.branch, layer.out):
            part.bfloat16()
        layer.join()
    generator = torch.Generator(device=DEVICE).manual_seed(52)
    batches = [
        torch.randint(5, (WINDOWS, LENGTH), device=DEVICE, generator=generator) for _ in range(SETS)
    ]

    def encode(i):
        x = embed(batches[i % SETS])
        for layer in layers:
            x = layer(x)
        return x

    for i in range(WARMUP):
        encode(i)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for i in range(STEPS_PER_BLOCK):
            x = encode(i)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"{WINDOWS * LENGTH / times[-1] / 1e6:.1f} Mbases/s")
    x = encode(0).float()
    out = {
        "program": "torch_genome_recurrence",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [x.square().mean().item(), x.abs().mean().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
