"""Batch norm and activation for sparse LiDAR voxel features, in Triton.

The features of all voxels of a batch of sweeps are one (voxels, channels)
matrix in half precision; statistics are taken over the voxels.
"""
import json
import statistics
import time

import torch
import triton
import triton.language as tl

SEED = 64
VOXELS = 300_000
CHANNELS = 128
LEVELS = 3
MOMENTUM = 0.1
EPS = 1e-5
WARMUP = 6
BLOCKS = 8
BLOCK_STEPS = 5


@triton.jit
def voxel_stats(x_ptr, mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr,
                rows, channels, eps, momentum,
                BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    col_ok = cols < channels
    total = tl.zeros((BLOCK_R, BLOCK_C), dtype=tl.float32)
    square = tl.zeros((BLOCK_R, BLOCK_C), dtype=tl.float32)
    for start in range(0, rows, BLOCK_R):
        r = start + tl.arange(0, BLOCK_R)
        ok = (r < rows)[:, None] & col_ok[None, :]
        x = tl.load(x_ptr + r[:, None] * channels + cols[None, :], mask=ok, other=0.0).to(tl.float32)
        total += x
        square += x * x
    mean = tl.sum(total, axis=0) / rows
    var = tl.sum(square, axis=0) / rows - mean * mean
    tl.store(mean_ptr + cols, mean, mask=col_ok)
    tl.store(rstd_ptr + cols, 1.0 / tl.sqrt(var + eps), mask=col_ok)
    old_mean = tl.load(running_mean_ptr + cols, mask=col_ok, other=0.0)
    old_var = tl.load(running_var_ptr + cols, mask=col_ok, other=0.0)
    tl.store(running_mean_ptr + cols, old_mean + momentum * (mean - old_mean), mask=col_ok)
    tl.store(running_var_ptr + cols, old_var + momentum * (var - old_var), mask=col_ok)


@triton.jit
def normalize_leaky(x_ptr, y_ptr, mean_ptr, rstd_ptr, weight_ptr, bias_ptr, rows, channels,
                    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    cols = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    col_ok = cols < channels
    ok = (r < rows)[:, None] & col_ok[None, :]
    at = r[:, None] * channels + cols[None, :]
    mean = tl.load(mean_ptr + cols, mask=col_ok, other=0.0)
    scale = tl.load(rstd_ptr + cols, mask=col_ok, other=0.0)
    scale *= tl.load(weight_ptr + cols, mask=col_ok, other=0.0)
    bias = tl.load(bias_ptr + cols, mask=col_ok, other=0.0)
    x = tl.load(x_ptr + at, mask=ok, other=0.0).to(tl.float32)
    y = (x - mean[None, :]) * scale[None, :] + bias[None, :]
    y = tl.where(y > 0, y, 0.1 * y)
    tl.store(y_ptr + at, y.to(tl.float16), mask=ok)


class VoxelNorm:
    def __init__(self, channels, gen, device):
        self.weight = 0.5 + torch.rand(channels, generator=gen, device=device)
        self.bias = 0.1 * torch.randn(channels, generator=gen, device=device)
        self.running_mean = torch.zeros(channels, device=device)
        self.running_var = torch.ones(channels, device=device)
        self.mean = torch.empty(channels, device=device)
        self.rstd = torch.empty(channels, device=device)

    def __call__(self, x, out):
        rows, channels = x.shape
        grid = (triton.cdiv(channels, 32),)
        voxel_stats[grid](x, self.mean, self.rstd, self.running_mean, self.running_var,
                          rows, channels, EPS, MOMENTUM, BLOCK_R=128, BLOCK_C=32, num_warps=4)
        grid = (triton.cdiv(rows, 64), triton.cdiv(channels, 128))
        normalize_leaky[grid](x, out, self.mean, self.rstd, self.weight, self.bias,
                              rows, channels, BLOCK_R=64, BLOCK_C=128, num_warps=8)
        return out


def main():
    device = torch.device("cuda")
    gen = torch.Generator(device=device)
    gen.manual_seed(SEED)
    offsets = torch.randn(CHANNELS, generator=gen, device=device)
    sweeps = torch.randn(VOXELS, CHANNELS, generator=gen, device=device)
    sweeps = (sweeps * 1.5 + offsets).half()
    buffers = [torch.empty_like(sweeps) for _ in range(2)]
    norms = [VoxelNorm(CHANNELS, gen, device) for _ in range(LEVELS)]
    step = 0

    def run(count):
        nonlocal step
        for _ in range(count):
            x = sweeps
            for level, norm in enumerate(norms):
                x = norm(x, buffers[level % 2])
            step += 1
        return x

    run(WARMUP)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        last = run(BLOCK_STEPS)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS * 1e6)

    print(json.dumps({
        "program": "triton_lidar_norm",
        "steps": step,
        "us": statistics.median(times),
        "result": [last.float().abs().mean().item(),
                   norms[0].running_var.mean().item(),
                   norms[-1].running_mean.abs().mean().item()],
    }))


if __name__ == "__main__":
    main()
