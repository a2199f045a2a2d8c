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
def recurrence_kernel(
    gates, decay, out, LENGTH: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """h = a h + sqrt(1 - a^2) i v along the window; gates holds r, i, v side by side."""
    window = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rate = tl.load(decay + channel)
    row = gates + window * LENGTH * 3 * WIDTH + channel
    target = out + window * LENGTH * WIDTH + channel
    h = tl.zeros([BLOCK], dtype=tl.float32)
    for t in range(LENGTH):
        r = tl.load(row).to(tl.float32)
        i = tl.load(row + WIDTH).to(tl.float32)
        v = tl.load(row + 2 * WIDTH).to(tl.float32)
        a = tl.exp(rate * tl.sigmoid(r))
        h = a * h + tl.sqrt(1.0 - a * a) * tl.sigmoid(i) * v
        tl.store(target, h.to(tl.bfloat16))
        row += 3 * WIDTH
        target += WIDTH


def recurrence(gates, decay):
    windows, length, width = gates.shape[0], gates.shape[1], gates.shape[2] // 3
    out = torch.empty(windows, length, width, device=gates.device, dtype=gates.dtype)
    block = 128
    recurrence_kernel[(windows, width // block)](
        gates, decay, out, length, width, block, num_warps=4
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
