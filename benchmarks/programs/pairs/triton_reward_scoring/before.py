"""Reward-model scoring of answers: a bf16 decoder with Triton kernels for the element-wise parts."""

import json
import statistics
import time

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

VOCAB = 16000
DIM = 2048
HIDDEN = 5632
HEADS = 16
LAYERS = 6
ANSWERS = 4
LENGTH = 2048
BATCHES = 6
BLOCKS = 10
STEPS_PER_BLOCK = 12
DEVICE = "cuda"
DTYPE = torch.bfloat16


@triton.jit
def add_norm_kernel(x_ptr, r_ptr, w_ptr, y_ptr, eps, D: tl.constexpr):
    """Adds the branch r to the residual x in place and writes RMSNorm(x) * w."""
    row = tl.program_id(0)
    col = tl.arange(0, D)
    x = tl.load(x_ptr + row * D + col).to(tl.float32) + tl.load(r_ptr + row * D + col).to(
        tl.float32
    )
    tl.store(x_ptr + row * D + col, x.to(x_ptr.dtype.element_ty))
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / D + eps)
    w = tl.load(w_ptr + col).to(tl.float32)
    tl.store(y_ptr + row * D + col, (x * scale * w).to(y_ptr.dtype.element_ty))


@triton.jit
def silu_mul_kernel(gu_ptr, out_ptr, H, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = col < H
    g = tl.load(gu_ptr + row * 2 * H + col, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(gu_ptr + row * 2 * H + H + col, mask=mask, other=0.0).to(tl.float32)
    tl.store(
        out_ptr + row * H + col, (g * tl.sigmoid(g) * u).to(out_ptr.dtype.element_ty), mask=mask
    )


def add_norm(x, branch, weight):
    y = torch.empty_like(x)
    add_norm_kernel[(x.shape[0],)](x, branch, weight, y, 1e-6, D=DIM, num_warps=8)
    return y


def silu_mul(gate_up):
    rows, width = gate_up.shape
    out = torch.empty(rows, width // 2, device=gate_up.device, dtype=gate_up.dtype)
    grid = (rows, triton.cdiv(width // 2, 1024))
    silu_mul_kernel[grid](gate_up, out, width // 2, BLOCK=1024, num_warps=4)
    return out


class Scorer:
    def __init__(self, generator):
        def weight(*shape):
            w = torch.randn(*shape, generator=generator, device=DEVICE) * shape[-1] ** -0.5
            return w.to(DTYPE)

        self.embed = weight(VOCAB, DIM)
        self.position = weight(LENGTH, DIM) * 0.1
        self.layers = [
            {
                "norm1": torch.ones(DIM, device=DEVICE, dtype=DTYPE),
                "qkv": weight(3 * DIM, DIM),
                "proj": weight(DIM, DIM) * 0.5,
                "norm2": torch.ones(DIM, device=DEVICE, dtype=DTYPE),
                "gate_up": weight(2 * HIDDEN, DIM),
                "down": weight(DIM, HIDDEN) * 0.5,
            }
            for _ in range(LAYERS)
        ]
        self.norm = torch.ones(DIM, device=DEVICE, dtype=DTYPE)
        self.head = weight(1, DIM)

    def attention(self, h, layer):
        qkv = F.linear(h, layer["qkv"]).view(ANSWERS, LENGTH, 3, HEADS, DIM // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(y.transpose(1, 2).reshape(-1, DIM), layer["proj"])

    def __call__(self, tokens):
        x = F.embedding(tokens.flatten(), self.embed)
        branch = self.position.repeat(ANSWERS, 1)
        for layer in self.layers:
            h = add_norm(x, branch, layer["norm1"])
            branch = self.attention(h, layer)
            h = add_norm(x, branch, layer["norm2"])
            branch = F.linear(silu_mul(F.linear(h, layer["gate_up"])), layer["down"])
        h = add_norm(x, branch, self.norm).view(ANSWERS, LENGTH, DIM)[:, -1]
        return F.linear(h, self.head).float().squeeze(-1)


@torch.inference_mode()
def main():
    generator = torch.Generator(DEVICE).manual_seed(6)
    scorer = Scorer(generator)
    tokens = torch.randint(VOCAB, (BATCHES, ANSWERS, LENGTH), generator=generator, device=DEVICE)
    scores = torch.zeros(BATCHES, ANSWERS, device=DEVICE)

    def step(i):
        scores[i % BATCHES] = scorer(tokens[i % BATCHES])

    done = 0
    for _ in range(6):
        step(done)
        done += 1
    times = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(done)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    checksum = scores.square().mean().sqrt().item()
    print(
        json.dumps(
            {
                "program": "triton_reward_scoring",
                "steps": done,
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
