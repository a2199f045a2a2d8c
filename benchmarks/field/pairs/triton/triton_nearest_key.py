"""Highest score of each query against 32768 keys, without keeping the scores."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

QUERIES, KEYS, DIM = 4096, 32768, 64


@triton.jit
def best_score(
    queries, keys, best, KEYS: tl.constexpr, DIM: tl.constexpr,
    TAKE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    own = tl.program_id(0) * TAKE + tl.arange(0, TAKE)
    columns = tl.arange(0, BLOCK)
    found = tl.full((TAKE, BLOCK), -1e30, dtype=tl.float32)
    for start in range(0, KEYS, BLOCK):
        score = tl.zeros((TAKE, BLOCK), dtype=tl.float32)
        for d in range(DIM):
            key = tl.load(keys + d * KEYS + start + columns)
            query = tl.load(queries + own * DIM + d)
            score += query[:, None] * key[None, :]
        found = tl.maximum(found, score)
    tl.store(best + own, tl.max(found, axis=1))


def inputs():
    torch.manual_seed(2)
    return (
        torch.randn(QUERIES, DIM, device="cuda"),
        torch.randn(DIM, KEYS, device="cuda"),
    )


def make(variant, queries, keys):
    take = 1 if variant == "before" else 8  # queries a program
    best = torch.empty(QUERIES, device="cuda")

    def run():
        best_score[(QUERIES // take,)](queries, keys, best, KEYS, DIM, take, 1024)

    return Work(run, lambda: best.cpu().numpy())


PAIR = Pair(inputs, make, Launch("best_score"), tolerance=1e-4)
