"""Gated normalisation between the layers of a wide token mixer, as one Triton kernel."""

import json
import statistics
import time

import torch
import triton
import triton.language as tl

DEVICE = "cuda"
ROWS, COLUMNS = 8192, 8192
LAYERS = 8
WARMUP, ROUNDS, EACH = 3, 8, 5


@triton.jit
def gated_norm(x_ptr, skip_ptr, weight_ptr, bias_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    skip = tl.load(skip_ptr + row * columns + at, mask=inside, other=0.0)
    h = x + skip
    mean = tl.sum(h, axis=0) / columns
    centred = tl.where(inside, h - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + at, mask=inside, other=0.0)
    normal = centred * scale * weight + bias
    size = tl.sum(tl.abs(normal), axis=0) / columns
    gate = tl.sigmoid(normal / (size + eps))
    tl.store(out_ptr + row * columns + at, skip + gate * normal, mask=inside)


def mix(x, skip, weight, bias, out):
    block = triton.next_power_of_2(COLUMNS)
    gated_norm[(ROWS,)](x, skip, weight, bias, out, COLUMNS, 1e-5, BLOCK=block, num_warps=16)
    return out


def main():
    torch.manual_seed(55)
    x = torch.randn(ROWS, COLUMNS).to(DEVICE)
    skip = torch.randn(ROWS, COLUMNS).to(DEVICE)
    weights = (1 + 0.1 * torch.randn(LAYERS, COLUMNS)).to(DEVICE)
    biases = (0.1 * torch.randn(LAYERS, COLUMNS)).to(DEVICE)
    buffers = [torch.empty_like(x) for _ in range(2)]

    def step():
        h = x
        for layer in range(LAYERS):
            h = mix(h, skip, weights[layer], biases[layer], buffers[layer % 2])
        return h

    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(EACH):
            out = step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / EACH)
    us = statistics.median(times) * 1e6
    moved = 3 * LAYERS * x.numel() * 4
    print(f"{moved / us / 1e6:.2f} TB/s")
    result = [out.double().square().mean().item(), out[7].double().abs().mean().item()]
    steps = WARMUP + ROUNDS * EACH
    print(json.dumps({"program": "triton_token_mixer", "steps": steps, "us": us, "result": result}))


if __name__ == "__main__":
    main()
