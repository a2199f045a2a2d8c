"""Click-through model: embedding tables and dense features from the host."""

import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
TABLES = 16
ROWS = 200_000
DIM = 32
DENSE = 512
BATCH = 16384
FILES = 4
WARMUP = 8
BLOCKS = 6
STEPS_PER_BLOCK = 8


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.Embedding(TABLES * ROWS, DIM, sparse=True)
        self.bottom = nn.Sequential(nn.Linear(DENSE, 256), nn.ReLU(), nn.Linear(256, DIM))
        self.top = nn.Sequential(nn.Linear((TABLES + 1) * DIM, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, dense, sparse):
        e = self.tables(sparse).flatten(1)
        return self.top(torch.cat([self.bottom(dense), e], dim=1)).squeeze(1)


def read_files():
    """Stand-in for files on disk: a few parts of a log as NumPy arrays."""
    rng = np.random.default_rng(6)
    parts = []
    shift = np.arange(TABLES, dtype=np.int64) * ROWS
    for _ in range(FILES):
        dense = rng.standard_normal((BATCH, DENSE), dtype=np.float32)
        sparse = rng.integers(0, ROWS, (BATCH, TABLES), dtype=np.int64) + shift
        clicks = (dense[:, 0] + dense[:, 1] > 0).astype(np.float32)
        parts.append((dense, sparse, clicks))
    return parts


def main():
    torch.manual_seed(6)
    torch.set_float32_matmul_precision("high")
    parts = [tuple(torch.from_numpy(a).pin_memory() for a in part) for part in read_files()]
    model = ClickModel().to(DEVICE)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    count = 0
    copy_stream, side = torch.cuda.Stream(), torch.cuda.Stream()
    ahead = [torch.empty_like(a, device=DEVICE) for a in parts[0]]
    batch = [torch.empty_like(a) for a in ahead]

    def fetch(i):
        """Start the copies of batch i beside the work of the step before, once that has its batch."""
        copy_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copy_stream):
            for to, a in zip(ahead, parts[i % FILES]):
                to.copy_(a, non_blocking=True)

    def load():
        nonlocal count
        torch.cuda.current_stream().wait_stream(copy_stream)
        for to, a in zip(batch, ahead):
            to.copy_(a)
        count += 1
        fetch(count)

    def work():
        dense, sparse, clicks = batch
        loss = F.binary_cross_entropy_with_logits(model(dense, sparse), clicks)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    fetch(0)
    first = []
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            load()
            first.append(work().item())
    torch.cuda.current_stream().wait_stream(side)
    opt.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        loss = work()

    def train_step():
        load()
        graph.replay()

    for _ in range(WARMUP):
        train_step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            train_step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    print(f"loss {first[0]:.4f} -> {loss.item():.4f}")
    print(f"{BATCH / statistics.median(times) / 1e6:.2f} M examples/s")
    out = {
        "program": "torch_recsys_ctr",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": first,
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
