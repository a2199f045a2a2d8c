"""Evidence of a geothermal reservoir model from tempered sampler chains.

Every chain holds the log-weights of its draws. After each round of resampling the
weights are tempered, and each chain needs the log of its mean weight and its
effective sample size.
"""
import json
import math
import statistics
import time

import torch
import triton
import triton.language as tl

NAME = "triton_chain_evidence"
CHAINS = 24
DRAWS = 8 * 1024 * 1024
BLOCK = 2048
WARMUP = 6
BLOCKS = 6
STEPS_PER_BLOCK = 5


@triton.jit
def chain_weights_kernel(
    log_weight, temperature, log_sum, log_sum_sq,
    draws, stride_chain,
    BLOCK: tl.constexpr,
):
    """Streaming log-sum-exp of w and of w^2 for the draws of one chain."""
    chain = tl.program_id(0)
    base = log_weight + chain.to(tl.int64) * stride_chain
    beta = tl.load(temperature)
    lane = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -1.0e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    total_sq = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, draws, BLOCK):
        index = start + lane
        value = beta * tl.load(base + index, mask=index < draws, other=-1.0e30)
        new_top = tl.maximum(top, value)
        keep = tl.exp(top - new_top)
        term = tl.exp(value - new_top)
        total = total * keep + term
        total_sq = total_sq * keep * keep + term * term
        top = new_top
    peak = tl.max(top, axis=0)
    scale = tl.exp(top - peak)
    tl.store(log_sum + chain, peak + tl.log(tl.sum(total * scale, axis=0)))
    tl.store(log_sum_sq + chain, 2.0 * peak + tl.log(tl.sum(total_sq * scale * scale, axis=0)))


class ChainSummary:
    """Buffers for the summaries of all chains."""

    def __init__(self, chains, device):
        self.log_sum = torch.empty(chains, device=device)
        self.log_sum_sq = torch.empty(chains, device=device)

    def update(self, log_weight, temperature):
        chains, draws = log_weight.shape
        chain_weights_kernel[(chains,)](
            log_weight, temperature, self.log_sum, self.log_sum_sq,
            draws, log_weight.stride(0),
            BLOCK=BLOCK, num_warps=4,
        )
        evidence = self.log_sum - math.log(draws)
        effective = torch.exp(2.0 * self.log_sum - self.log_sum_sq)
        return evidence, effective


def synthetic_log_weights(generator, device):
    """Skewed log-likelihoods; the chains differ in their mean and spread."""
    spread = torch.linspace(0.5, 1.5, CHAINS, device=device).unsqueeze(1)
    level = torch.linspace(-40.0, -20.0, CHAINS, device=device).unsqueeze(1)
    weights = torch.randn(CHAINS, DRAWS, generator=generator, device=device)
    return weights.mul_(spread).add_(level)


def main():
    device = torch.device("cuda")
    generator = torch.Generator(device=device).manual_seed(33)
    log_weight = synthetic_log_weights(generator, device)
    total_steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    temperatures = torch.linspace(0.2, 1.0, total_steps, device=device)
    summary = ChainSummary(CHAINS, device)
    history = torch.zeros(total_steps, 2, CHAINS, device=device)

    def step(i):
        evidence, effective = summary.update(log_weight, temperatures[i])
        history[i, 0] = evidence
        history[i, 1] = effective

    for i in range(WARMUP):
        step(i)
    torch.cuda.synchronize()

    times = []
    steps = WARMUP
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(steps)
            steps += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK * 1e6)

    print(json.dumps({
        "program": NAME,
        "steps": steps,
        "us": statistics.median(times),
        "result": [
            history[:, 0].mean().item(),
            history[-1, 0, 0].item(),
            (history[:, 1].mean() / DRAWS).item(),
        ],
    }))


if __name__ == "__main__":
    main()
