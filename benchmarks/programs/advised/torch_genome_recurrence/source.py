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
def sigmoid(x):
    t = tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [0.5 * x], dtype=tl.float32, is_pure=True, pack=1
    )
    return 0.5 * t + 0.5


@triton.jit
def chain(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@triton.jit
def recurrence_kernel(
    gates,
    tokens,
    decay,
    out,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    TIME: tl.constexpr,
    BLOCK: tl.constexpr,
    LOOKUP: tl.constexpr,
):
    """h = a h + sqrt(1 - a^2) i v along the window, times gelu(g), a tile of times by a scan.

    gates holds r, i, v, g side by side: a row per position, or with LOOKUP a row per token.
    """
    window = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    times = tl.arange(0, TIME)
    rate = tl.load(decay + channel)[None, :] * 1.4426950408889634
    if LOOKUP:
        row = tl.load(tokens + window * LENGTH + times)
    else:
        row = window * LENGTH + times
    source = gates + row[:, None] * (4 * WIDTH) + channel[None, :]
    r = tl.load(source)
    i = tl.load(source + WIDTH)
    v = tl.load(source + 2 * WIDTH)
    g = tl.load(source + 3 * WIDTH)
    h = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, LENGTH, TIME):
        # The next tile is fetched while this one is worked on; the last fetch is a repeat.
        following = tl.minimum(start + TIME, LENGTH - TIME)
        if LOOKUP:
            next_row = tl.load(tokens + window * LENGTH + following + times)
        else:
            next_row = window * LENGTH + following + times
        next_source = gates + next_row[:, None] * (4 * WIDTH) + channel[None, :]
        next_r = tl.load(next_source)
        next_i = tl.load(next_source + WIDTH)
        next_v = tl.load(next_source + 2 * WIDTH)
        next_g = tl.load(next_source + 3 * WIDTH)

        a = tl.exp2(rate * sigmoid(r.to(tl.float32)))
        b = tl.sqrt(1.0 - a * a) * sigmoid(i.to(tl.float32)) * v.to(tl.float32)
        product, local = tl.associative_scan((a, b), 0, chain)
        state = product * h[None, :] + local
        h = tl.sum(tl.where(times[:, None] == TIME - 1, state, 0.0), axis=0)
        branch = g.to(tl.float32)
        branch = 0.5 * branch * (1.0 + tl.erf(branch * 0.7071067811865476))
        target = (window * LENGTH + start + times)[:, None] * WIDTH + channel[None, :]
        tl.store(out + target, (state * branch).to(tl.bfloat16))
        r = next_r
        i = next_i
        v = next_v
        g = next_g


def recurrence(gates, tokens, decay, lookup):
    out = torch.empty(WINDOWS * LENGTH, WIDTH, device=gates.device, dtype=gates.dtype)
    block = 32
    recurrence_kernel[(WINDOWS, WIDTH // block)](
        gates, tokens, decay, out, LENGTH, WIDTH, 128, block, lookup, num_warps=8
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
        """Put the weights of the two projections of the same input together."""
        self.joint = torch.cat([self.gates.weight, self.branch.weight])

    def forward(self, x, tokens, table=None):
        """Adds to x (positions, WIDTH) in place; table, where given, holds x's few distinct rows."""
        y = self.norm(x if table is None else table)
        z = recurrence(F.linear(y, self.joint), tokens, self.decay, table is not None)
        return x.addmm_(z, self.out.weight.t())


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
        tokens = batches[i % SETS].view(-1)
        x = embed(tokens)
        # Before the first recurrence a position's activations depend on its base alone.
        x = layers[0](x, tokens, embed.weight)
        for layer in layers[1:]:
            x = layer(x, tokens)
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
