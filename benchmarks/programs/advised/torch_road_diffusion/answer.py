"""Spread traffic counts over a road network: personalised propagation of node features."""

import json
import statistics
import time

import torch
import triton
import triton.language as tl

DEVICE = "cuda"
NODES = 400_000
ROADS = 4_000_000
FEATURES = 64
ROUNDS = 6
ALPHA = 0.1
WARMUP, STEPS = 4, 36
LONG = 64  # rows with more roads than this get a program of their own
ROWS, SLICE, EDGES = 32, 32, 64


@triton.jit
def long_row(
    x, base, out, rows, start, source, weight, at, f, keep, alpha,
    F: tl.constexpr, SLICE: tl.constexpr, EDGES: tl.constexpr,
):
    row = tl.load(rows + at)
    begin = tl.load(start + at)
    end = tl.load(start + at + 1)
    lane = tl.arange(0, EDGES)
    acc = tl.zeros([EDGES, SLICE], dtype=tl.float32)
    for i in range(begin, end, EDGES):
        inside = i + lane < end
        s = tl.load(source + i + lane, mask=inside, other=0)
        w = tl.load(weight + i + lane, mask=inside, other=0.0)
        acc += tl.load(x + s[:, None] * F + f[None, :]) * w[:, None]
    place = row * F + f
    tl.store(out + place, keep * tl.sum(acc, axis=0) + alpha * tl.load(base + place))


@triton.jit
def short_rows(
    x, base, out, rows, start, source, weight, first, at, f, keep, alpha,
    F: tl.constexpr, SLICE: tl.constexpr, ROWS: tl.constexpr,
):
    lane = tl.arange(0, ROWS)
    row = tl.load(rows + first + at * ROWS + lane)
    begin = tl.load(start + at)
    end = tl.load(start + at + 1)
    acc = tl.zeros([ROWS, SLICE], dtype=tl.float32)
    for i in range(begin, end, 2 * ROWS):
        s0 = tl.load(source + i + lane)
        s1 = tl.load(source + i + ROWS + lane)
        w0 = tl.load(weight + i + lane)
        w1 = tl.load(weight + i + ROWS + lane)
        v0 = tl.load(x + s0[:, None] * F + f[None, :])
        v1 = tl.load(x + s1[:, None] * F + f[None, :])
        acc += v0 * w0[:, None]
        acc += v1 * w1[:, None]
    place = row[:, None] * F + f[None, :]
    real = (row >= 0)[:, None] & (f >= 0)[None, :]
    rest = tl.load(base + place, mask=real, other=0.0, eviction_policy="evict_first")
    tl.store(out + place, keep * acc + alpha * rest, mask=real)


@triton.jit
def spread_kernel(
    x, base, out, rows, long_start, long_source, long_weight,
    tile_start, tile_source, tile_weight, longs, keep, alpha,
    F: tl.constexpr, SLICE: tl.constexpr, ROWS: tl.constexpr, EDGES: tl.constexpr,
):
    """out = keep * A x + alpha * base, for a slice of the features (so that it stays in L2)."""
    at = tl.program_id(0)
    f = tl.program_id(1) * SLICE + tl.arange(0, SLICE)
    if at < longs:
        long_row(
            x, base, out, rows, long_start, long_source, long_weight, at, f, keep, alpha,
            F, SLICE, EDGES,
        )
    else:
        short_rows(
            x, base, out, rows, tile_start, tile_source, tile_weight, longs, at - longs, f,
            keep, alpha, F, SLICE, ROWS,
        )


class RoadNetwork:
    """Directed roads with symmetric normalisation, as an edge list."""

    def __init__(self, generator):
        self.source = torch.randint(0, NODES, (ROADS,), generator=generator, device=DEVICE)
        hub = torch.rand(ROADS, generator=generator, device=DEVICE).square()
        self.target = (hub * NODES).long().clamp_(max=NODES - 1)
        ones = torch.ones(ROADS, device=DEVICE)
        into = torch.zeros(NODES, device=DEVICE).index_add_(0, self.target, ones)
        out = torch.zeros(NODES, device=DEVICE).index_add_(0, self.source, ones)
        self.weight = (out[self.source].clamp(1) * into[self.target].clamp(1)).rsqrt()

        self.sort()

    def sort(self):
        """Order rows by degree; long rows in CSR, short rows in tiles of ROWS, slot by slot."""
        degree = torch.bincount(self.target, minlength=NODES)
        degree, order = degree.sort(descending=True, stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(NODES, device=DEVICE)
        place, edges = rank[self.target].sort(stable=True)
        source = self.source[edges].int()
        weight = self.weight[edges]
        start = degree.cumsum(0) - degree
        slot = torch.arange(ROADS, device=DEVICE) - start[place]

        self.longs = int((degree > LONG).sum())
        cut = int(degree[: self.longs].sum())
        self.long_start = torch.zeros(self.longs + 1, dtype=torch.int32, device=DEVICE)
        self.long_start[1:] = degree[: self.longs].cumsum(0)
        # one entry more, so that the arrays are never empty
        self.long_source = torch.zeros(cut + 1, dtype=torch.int32, device=DEVICE)
        self.long_source[:cut] = source[:cut]
        self.long_weight = torch.zeros(cut + 1, device=DEVICE)
        self.long_weight[:cut] = weight[:cut]

        self.tiles = -(-(NODES - self.longs) // ROWS)
        width = (degree[self.longs :: ROWS] + 1) // 2 * 2
        ends = (width * ROWS).cumsum(0)
        self.tile_start = torch.zeros(self.tiles + 1, dtype=torch.int32, device=DEVICE)
        self.tile_start[1:] = ends
        short = place[cut:] - self.longs
        tile = short // ROWS
        spot = self.tile_start[tile].long() + slot[cut:] * ROWS + short % ROWS
        total = int(ends[-1])
        self.tile_source = torch.zeros(total, dtype=torch.int32, device=DEVICE)
        self.tile_source[spot] = source[cut:]
        self.tile_weight = torch.zeros(total, device=DEVICE)
        self.tile_weight[spot] = weight[cut:]
        self.rows = torch.full(
            (self.longs + self.tiles * ROWS,), -1, dtype=torch.int32, device=DEVICE
        )
        self.rows[:NODES] = order.int()

    def round(self, x, counts):
        out = torch.empty_like(x)
        spread_kernel[(self.longs + self.tiles, FEATURES // SLICE)](
            x, counts, out, self.rows, self.long_start, self.long_source, self.long_weight,
            self.tile_start, self.tile_source, self.tile_weight, self.longs, 1 - ALPHA, ALPHA,
            F=FEATURES, SLICE=SLICE, ROWS=ROWS, EDGES=EDGES, num_warps=4,
        )
        return out


def propagate(network, counts):
    x = counts
    for _ in range(ROUNDS):
        x = network.round(x, counts)
    return x


@torch.inference_mode()
def main():
    generator = torch.Generator(device=DEVICE).manual_seed(15)
    network = RoadNetwork(generator)
    days = [torch.rand(NODES, FEATURES, generator=generator, device=DEVICE) for _ in range(3)]
    laps = []
    for day in range(WARMUP + STEPS):
        begin = time.perf_counter()
        smooth = propagate(network, days[day % 3])
        torch.cuda.synchronize()
        laps.append(time.perf_counter() - begin)
    us = statistics.median(laps[WARMUP:]) * 1e6
    result = [smooth.double().mean().item(), smooth.double().square().mean().item()]
    print(f"{us / 1e3:.2f} ms a day, mean {result[0]:.6f}")
    print(
        json.dumps(
            {"program": "torch_road_diffusion", "steps": len(laps), "us": us, "result": result}
        )
    )


if __name__ == "__main__":
    main()
