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


CHUNK = 128


@triton.jit
def coefficients(r, i, v, rate):
    r, i, v = r.to(tl.float32), i.to(tl.float32), v.to(tl.float32)
    a = tl.exp(rate * tl.sigmoid(r))
    return a, tl.sqrt(1.0 - a * a) * tl.sigmoid(i) * v


@triton.jit
def chunk_kernel(
    gates,
    decay,
    products,
    ends,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Product of a, and h at the end from h = 0, of each chunk but the last of a window."""
    window = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    channel = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    rate = tl.load(decay + channel)
    row = gates + (window * LENGTH + chunk * CHUNK) * 4 * WIDTH + channel
    h = tl.zeros([BLOCK], dtype=tl.float32)
    product = tl.full([BLOCK], 1.0, dtype=tl.float32)
    r = tl.load(row)
    i = tl.load(row + WIDTH)
    v = tl.load(row + 2 * WIDTH)
    for t in range(CHUNK):
        more = t + 1 < CHUNK
        row += 4 * WIDTH
        r_next = tl.load(row, mask=more, other=0.0)
        i_next = tl.load(row + WIDTH, mask=more, other=0.0)
        v_next = tl.load(row + 2 * WIDTH, mask=more, other=0.0)
        a, u = coefficients(r, i, v, rate)
        h = a * h + u
        product *= a
        r, i, v = r_next, i_next, v_next
    place = (window * (LENGTH // CHUNK) + chunk) * WIDTH + channel
    tl.store(products + place, product)
    tl.store(ends + place, h)


@triton.jit
def output_kernel(
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
    """h = a h + sqrt(1 - a^2) i v along a chunk, from the chunks before; out is h gelu(branch).

    gates holds r, i, v and branch side by side."""
    window = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    channel = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    rate = tl.load(decay + channel)
    row = gates + (window * LENGTH + chunk * CHUNK) * 4 * WIDTH + channel
    target = out + (window * LENGTH + chunk * CHUNK) * WIDTH + channel
    r = tl.load(row)
    i = tl.load(row + WIDTH)
    v = tl.load(row + 2 * WIDTH)
    b = tl.load(row + 3 * WIDTH)
    h = tl.zeros([BLOCK], dtype=tl.float32)
    place = window * (LENGTH // CHUNK) * WIDTH + channel
    for c in tl.range(0, chunk, loop_unroll_factor=4):
        h = tl.load(products + place + c * WIDTH) * h + tl.load(ends + place + c * WIDTH)
    for t in range(CHUNK):
        more = t + 1 < CHUNK
        row += 4 * WIDTH
        r_next = tl.load(row, mask=more, other=0.0)
        i_next = tl.load(row + WIDTH, mask=more, other=0.0)
        v_next = tl.load(row + 2 * WIDTH, mask=more, other=0.0)
        b_next = tl.load(row + 3 * WIDTH, mask=more, other=0.0)
        a, u = coefficients(r, i, v, rate)
        h = a * h + u
        y = b.to(tl.float32)
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
        y = h.to(tl.bfloat16).to(tl.float32) * y.to(tl.bfloat16).to(tl.float32)
        tl.store(target, y.to(tl.bfloat16))
        target += WIDTH
        r, i, v, b = r_next, i_next, v_next, b_next


def recurrence(gates, decay):
    windows, length, width = gates.shape[0], gates.shape[1], gates.shape[2] // 4
    out = torch.empty(windows, length, width, device=gates.device, dtype=gates.dtype)
    chunks = length // CHUNK
    products = torch.empty(windows, chunks, width, device=gates.device, dtype=torch.float32)
    ends = torch.empty_like(products)
    block = 256
    chunk_kernel[(windows, chunks - 1, width // block)](
        gates, decay, products, ends, length, width, CHUNK, block, num_warps=4
    )
    output_kernel[(windows, chunks, width // block)](
        gates, decay, products, ends, out, length, width, CHUNK, block, num_warps=4
    )
    return out


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.gates = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.branch = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("decay", -8 * F.softplus(torch.linspace(-6, -1, WIDTH)))

    def merge(self):
        """The weights of gates and branch, one under the other, for one product."""
        self.merged = torch.cat([self.gates.weight, self.branch.weight])

    def forward(self, x):
        """Adds to x in place."""
        y = F.linear(self.norm(x), self.merged)
        h = recurrence(y, self.decay)
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
        layer.merge()
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
