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


HEAVY = 48  # roads into a node above which a program takes it alone
ROWS = 16


@triton.jit
def finish(out, origin, row, mask, total, scale_in, scale_out, ALPHA: tl.constexpr,
           LAST: tl.constexpr, FEATURES: tl.constexpr):  # fmt: skip
    """Store (1 - ALPHA) * scaled sum + ALPHA * origin; before the last round times scale_out."""
    at = row[:, None] * FEATURES + tl.arange(0, FEATURES)[None, :]
    factor = (1 - ALPHA) * tl.load(scale_in + row, mask=mask, other=0.0)
    if not LAST:
        factor *= tl.load(scale_out + row, mask=mask, other=0.0)
    start = tl.load(origin + at, mask=mask[:, None], other=0.0).to(tl.float32)
    value = factor[:, None] * total + ALPHA * start
    tl.store(out + at, value.to(out.dtype.element_ty), mask=mask[:, None])


@triton.jit
def heavy_node(y, out, origin, source, begin, degree, order, scale_in, scale_out, place, nodes,
               ALPHA: tl.constexpr, LAST: tl.constexpr, FEATURES: tl.constexpr,
               EDGES: tl.constexpr):  # fmt: skip
    feature = tl.arange(0, FEATURES)
    edge = tl.arange(0, EDGES)
    node = tl.load(order + place)
    first = tl.load(begin + node)
    count = tl.load(degree + node)
    sums = tl.zeros([EDGES, FEATURES], tl.float32)
    for j in range(0, count, EDGES):
        ok = j + edge < count
        origin_node = tl.load(source + first + j + edge, mask=ok, other=0)
        at = origin_node[:, None] * FEATURES + feature[None, :]
        sums += tl.load(y + at, mask=ok[:, None], other=0.0).to(tl.float32)
    total = tl.sum(sums, axis=0)[None, :]
    row = node + tl.zeros([1], tl.int32)
    finish(out, origin, row, row < nodes, total, scale_in, scale_out, ALPHA, LAST, FEATURES)


@triton.jit
def light_nodes(y, out, origin, source, begin, degree, order, scale_in, scale_out, start, nodes,
                ALPHA: tl.constexpr, LAST: tl.constexpr, FEATURES: tl.constexpr,
                ROWS: tl.constexpr, UNROLL: tl.constexpr):  # fmt: skip
    feature = tl.arange(0, FEATURES)
    place = start + tl.arange(0, ROWS)
    mask = place < nodes
    row = tl.load(order + place, mask=mask, other=0)
    first = tl.load(begin + row, mask=mask, other=0)
    count = tl.load(degree + row, mask=mask, other=0)
    total = tl.zeros([ROWS, FEATURES], tl.float32)
    for j in range(0, tl.max(count, axis=0), UNROLL):
        for k in tl.static_range(UNROLL):
            ok = j + k < count
            node = tl.load(source + first + j + k, mask=ok, other=0)
            at = node[:, None] * FEATURES + feature[None, :]
            total += tl.load(y + at, mask=ok[:, None], other=0.0).to(tl.float32)
    finish(out, origin, row, mask, total, scale_in, scale_out, ALPHA, LAST, FEATURES)


@triton.jit
def spread_kernel(
    y, out, origin, source, begin, degree, order, scale_in, scale_out, heavy, nodes,
    ALPHA: tl.constexpr, LAST: tl.constexpr, FEATURES: tl.constexpr,
    ROWS: tl.constexpr, EDGES: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if pid < heavy:
        heavy_node(y, out, origin, source, begin, degree, order, scale_in, scale_out,
                   pid, nodes, ALPHA, LAST, FEATURES, EDGES)  # fmt: skip
    else:
        light_nodes(y, out, origin, source, begin, degree, order, scale_in, scale_out,
                    heavy + (pid - heavy) * ROWS, nodes, ALPHA, LAST, FEATURES, ROWS, UNROLL)  # fmt: skip


class RoadNetwork:
    """Directed roads with symmetric normalisation, grouped by target."""

    def __init__(self, generator):
        source = torch.randint(0, NODES, (ROADS,), generator=generator, device=DEVICE)
        hub = torch.rand(ROADS, generator=generator, device=DEVICE).square()
        target = (hub * NODES).long().clamp_(max=NODES - 1)
        into = torch.bincount(target, minlength=NODES)
        out = torch.bincount(source, minlength=NODES)
        self.source = source[torch.argsort(target, stable=True)].int()
        self.begin = (torch.cumsum(into, 0) - into).int()
        self.degree = into.int()
        # nodes of like degree share a program, the busiest start first
        self.order = torch.argsort(into, descending=True, stable=True).int()
        self.heavy = int((into > HEAVY).sum().item())
        self.programs = self.heavy + triton.cdiv(NODES - self.heavy, ROWS)
        # a road's weight is the product of these two
        self.scale_in = into.clamp(1).float().rsqrt()
        self.scale_out = out.clamp(1).float().rsqrt()

    def spread(self, y, origin, result, last):
        spread_kernel[(self.programs,)](
            y, result, origin, self.source, self.begin, self.degree, self.order,
            self.scale_in, self.scale_out, self.heavy, NODES,
            ALPHA=ALPHA, LAST=last, FEATURES=FEATURES,
            ROWS=ROWS, EDGES=64, UNROLL=4, num_warps=4,
        )  # fmt: skip
        return result


def propagate(network, counts):
    # between rounds the features are kept times scale_out, in half precision
    origin = torch.empty(counts.shape, device=DEVICE, dtype=torch.float16)
    torch.mul(counts, network.scale_out[:, None], out=origin)
    y = origin
    buffers = [torch.empty_like(origin), torch.empty_like(origin)]
    for i in range(ROUNDS - 1):
        y = network.spread(y, origin, buffers[i % 2], False)
    return network.spread(y, counts, torch.empty_like(counts), True)


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
