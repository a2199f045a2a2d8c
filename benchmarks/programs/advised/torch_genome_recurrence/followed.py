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


@triton.jit
def chunk_kernel(
    gates, decay, product, end,
    LENGTH: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):
    """Of each chunk: the product of its a, and where h ends if it starts from zero."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    window = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(2)
    rate = tl.load(decay + channel)
    row = gates + (window * LENGTH + chunk * CHUNK) * 3 * WIDTH + channel
    h = tl.zeros([BLOCK], dtype=tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for _ in range(0, CHUNK, 4):
        for _u in tl.static_range(4):
            r = tl.load(row).to(tl.float32)
            i = tl.load(row + WIDTH).to(tl.float32)
            v = tl.load(row + 2 * WIDTH).to(tl.float32)
            gate = tl.sigmoid(r)
            total += gate
            a = tl.exp(rate * gate)
            h = a * h + tl.sqrt(1.0 - a * a) * tl.sigmoid(i) * v
            row += 3 * WIDTH
    place = (window * (LENGTH // CHUNK) + chunk) * WIDTH + channel
    tl.store(product + place, tl.exp(rate * total))
    tl.store(end + place, h)


@triton.jit
def combine(a1, h1, a2, h2):
    return a1 * a2, a2 * h1 + h2


@triton.jit
def carry_kernel(product, end, state, CHUNKS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """h at the end of each chunk."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chunk = tl.program_id(1) * CHUNKS + tl.arange(0, CHUNKS)
    place = chunk[:, None] * WIDTH + channel[None, :]
    a = tl.load(product + place)
    h = tl.load(end + place)
    a, h = tl.associative_scan((a, h), 0, combine)
    tl.store(state + place, h)


@triton.jit
def recurrence_kernel(
    gates, decay, state, out,
    LENGTH: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = a h + sqrt(1 - a^2) i v along a chunk; gates holds r, i, v side by side."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    window = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(2)
    rate = tl.load(decay + channel)
    row = gates + (window * LENGTH + chunk * CHUNK) * 3 * WIDTH + channel
    target = out + (window * LENGTH + chunk * CHUNK) * WIDTH + channel
    before = (window * (LENGTH // CHUNK) + tl.maximum(chunk - 1, 0)) * WIDTH + channel
    h = tl.load(state + before)
    h = tl.where(chunk > 0, h, 0.0)
    r = tl.load(row)
    i = tl.load(row + WIDTH)
    v = tl.load(row + 2 * WIDTH)
    for t in range(CHUNK):
        # the next row is on its way while this one is computed
        following = row + tl.minimum(t + 1, CHUNK - 1) * (3 * WIDTH)
        next_r = tl.load(following)
        next_i = tl.load(following + WIDTH)
        next_v = tl.load(following + 2 * WIDTH)
        a = tl.exp(rate * tl.sigmoid(r.to(tl.float32)))
        h = a * h + tl.sqrt(1.0 - a * a) * tl.sigmoid(i.to(tl.float32)) * v.to(tl.float32)
        tl.store(target + t * WIDTH, h.to(tl.bfloat16))
        r = next_r
        i = next_i
        v = next_v


def recurrence(gates, decay):
    windows, length, width = gates.shape[0], gates.shape[1], gates.shape[2] // 3
    out = torch.empty(windows, length, width, device=gates.device, dtype=gates.dtype)
    chunk, block, carry_block = 64, 256, 32
    chunks = length // chunk
    product, end, state = torch.empty(
        3, windows, chunks, width, device=gates.device, dtype=torch.float32
    ).unbind()
    grid = (width // block, windows, chunks)
    chunk_kernel[grid](gates, decay, product, end, length, width, chunk, block, num_warps=2)
    carry_kernel[(width // carry_block, windows)](
        product, end, state, chunks, width, carry_block, num_warps=4
    )
    recurrence_kernel[grid](gates, decay, state, out, length, width, chunk, block, num_warps=2)
    return out


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.gates = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.branch = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("decay", -8 * F.softplus(torch.linspace(-6, -1, WIDTH)))

    def forward(self, x):
        y = self.norm(x)
        h = recurrence(self.gates(y), self.decay)
        return x + self.out(h * F.gelu(self.branch(y)))


@torch.inference_mode()
def main():
    torch.manual_seed(51)
    embed = nn.Embedding(5, WIDTH).to(DEVICE).bfloat16()
    layers = [Layer().to(DEVICE) for _ in range(LAYERS)]
    for layer in layers:
        for part in (layer.norm, layer.gates, layer.branch, layer.out):
            part.bfloat16()
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
