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


ROWS = 16  # nodes per program
UNROLL = 4
HEAVY = 128  # nodes with more roads than this are cut into chunks
CHUNK = 256
TILE = 64


@triton.jit
def scale_kernel(counts, d_out, y, total, F: tl.constexpr, BLOCK: tl.constexpr):
    """y = counts * d_out in half precision."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    c = tl.load(counts + i, mask=mask, other=0.0)
    d = tl.load(d_out + i // F, mask=mask, other=0.0)
    tl.store(y + i, (c * d).to(tl.float16), mask=mask)


@triton.jit
def finish(acc, node, mask, feature, counts, d_in, d_out, dest, F: tl.constexpr,
           KEEP: tl.constexpr, LAST: tl.constexpr):
    at = node[:, None] * F + feature[None, :]
    mask2 = mask[:, None] & (feature[None, :] < F)
    c = tl.load(counts + at, mask=mask2, other=0.0)
    scale = tl.load(d_in + node, mask=mask, other=0.0)
    x = acc * (KEEP * scale)[:, None] + (1.0 - KEEP) * c
    if LAST:
        tl.store(dest + at, x, mask=mask2)
    else:
        out = tl.load(d_out + node, mask=mask, other=0.0)
        tl.store(dest + at, (x * out[:, None]).to(tl.float16), mask=mask2)


@triton.jit
def spread_kernel(y, counts, d_in, d_out, dest, slots, base, nodes,
                  heavy_source, chunk_start, chunk_end, partial, n_chunks,
                  F: tl.constexpr, KEEP: tl.constexpr, LAST: tl.constexpr,
                  ROWS: tl.constexpr, UNROLL: tl.constexpr, TILE: tl.constexpr):
    pid = tl.program_id(0)
    feature = tl.arange(0, F)
    if pid < n_chunks:
        first = tl.load(chunk_start + pid)
        end = tl.load(chunk_end + pid)
        lane = tl.arange(0, TILE)
        part = tl.zeros((TILE, F), dtype=tl.float32)
        for e in range(first, end, TILE):
            ok = e + lane < end
            source = tl.load(heavy_source + e + lane, mask=ok, other=0)
            part += tl.load(
                y + source[:, None] * F + feature[None, :], mask=ok[:, None], other=0.0
            ).to(tl.float32)
        tl.store(partial + pid * F + feature, tl.sum(part, axis=0))
    else:
        block = pid - n_chunks
        row = tl.arange(0, ROWS)
        node = tl.load(nodes + block * ROWS + row)
        low = tl.load(base + block)
        high = tl.load(base + block + 1)
        acc = tl.zeros((ROWS, F), dtype=tl.float32)
        for s in range(low, high, ROWS * UNROLL):
            for u in tl.static_range(UNROLL):
                start = tl.load(slots + s + u * ROWS + row)
                acc += tl.load(
                    y + start[:, None] * F + feature[None, :],
                    mask=start[:, None] >= 0,
                    other=0.0,
                ).to(tl.float32)
        finish(acc, node, node >= 0, feature, counts, d_in, d_out, dest, F, KEEP, LAST)


@triton.jit
def heavy_kernel(partial, row_chunk, nodes, counts, d_in, d_out, dest,
                 F: tl.constexpr, KEEP: tl.constexpr, LAST: tl.constexpr):
    """Add the chunks of one node with many roads."""
    pid = tl.program_id(0)
    one = tl.arange(0, 1)
    feature = tl.arange(0, F)
    acc = tl.zeros((1, F), dtype=tl.float32)
    for c in range(tl.load(row_chunk + pid), tl.load(row_chunk + pid + 1)):
        acc += tl.load(partial + (c + one)[:, None] * F + feature[None, :])
    node = tl.load(nodes + pid + one)
    finish(acc, node, node >= 0, feature, counts, d_in, d_out, dest, F, KEEP, LAST)


class RoadNetwork:
    """Directed roads with symmetric normalisation, grouped by target."""

    def __init__(self, generator):
        source = torch.randint(0, NODES, (ROADS,), generator=generator, device=DEVICE)
        hub = torch.rand(ROADS, generator=generator, device=DEVICE).square()
        target = (hub * NODES).long().clamp_(max=NODES - 1)
        into = torch.bincount(target, minlength=NODES)
        out = torch.bincount(source, minlength=NODES)
        # weight = (out[source] * into[target]).rsqrt() as a factor of either end
        self.d_in = into.float().clamp_(1).rsqrt()
        self.d_out = out.float().clamp_(1).rsqrt()
        self.group(source, target, into)
        self.half = [
            torch.empty(NODES, FEATURES, dtype=torch.float16, device=DEVICE) for _ in range(2)
        ]

    def group(self, source, target, into):
        target, by_target = torch.sort(target, stable=True)
        source = source[by_target].int()
        begin = into.cumsum(0) - into
        rank = torch.arange(ROADS, device=DEVICE) - begin[target]
        degree, order = torch.sort(into, descending=True, stable=True)
        heavy = int((degree > HEAVY).sum())

        # Nodes with many roads: chunks of their part of the sorted list.
        self.heavy_source = source
        self.heavy_nodes = order[:heavy].int()
        chunks = (degree[:heavy] + CHUNK - 1) // CHUNK
        row_chunk = torch.zeros(heavy + 1, dtype=torch.long, device=DEVICE)
        row_chunk[1:] = chunks.cumsum(0)
        self.n_heavy, self.n_chunks = heavy, int(row_chunk[-1])
        row = torch.repeat_interleave(torch.arange(heavy, device=DEVICE), chunks)
        number = torch.arange(self.n_chunks, device=DEVICE) - row_chunk[row]
        start = begin[order[row]] + number * CHUNK
        end = torch.minimum(start + CHUNK, begin[order[row]] + degree[row])
        self.row_chunk, self.chunk_start, self.chunk_end = row_chunk.int(), start.int(), end.int()
        self.partial = torch.empty(max(self.n_chunks, 1), FEATURES, device=DEVICE)

        # All others, by degree: blocks of ROWS nodes, the roads of a block interleaved.
        light = NODES - heavy
        self.blocks = (light + ROWS - 1) // ROWS
        nodes = torch.full((self.blocks * ROWS,), -1, dtype=torch.int32, device=DEVICE)
        nodes[:light] = order[heavy:].int()
        self.nodes = nodes
        longest = degree[heavy::ROWS]
        length = (longest + UNROLL - 1) // UNROLL * UNROLL * ROWS
        base = torch.zeros(self.blocks + 1, dtype=torch.long, device=DEVICE)
        base[1:] = length.cumsum(0)
        place = torch.empty(NODES, dtype=torch.long, device=DEVICE)
        place[order] = torch.arange(NODES, device=DEVICE) - heavy
        at = place[target]
        keep = at >= 0
        at = at[keep]
        slots = torch.full((int(base[-1]),), -1, dtype=torch.int32, device=DEVICE)
        slots[base[at // ROWS] + rank[keep] * ROWS + at % ROWS] = source[keep]
        self.slots, self.base = slots, base.int()

    def round(self, y, counts, dest, last):
        spread_kernel[(self.n_chunks + self.blocks,)](
            y, counts, self.d_in, self.d_out, dest, self.slots, self.base, self.nodes,
            self.heavy_source, self.chunk_start, self.chunk_end, self.partial, self.n_chunks,
            F=FEATURES, KEEP=1 - ALPHA, LAST=last, ROWS=ROWS, UNROLL=UNROLL, TILE=TILE,
            num_warps=4,
        )
        if self.n_heavy:
            heavy_kernel[(self.n_heavy,)](
                self.partial, self.row_chunk, self.heavy_nodes, counts, self.d_in, self.d_out,
                dest, F=FEATURES, KEEP=1 - ALPHA, LAST=last, num_warps=1,
            )


def propagate(network, counts):
    y, other = network.half
    total = counts.numel()
    scale_kernel[(triton.cdiv(total, 2048),)](
        counts, network.d_out, y, total, F=FEATURES, BLOCK=2048, num_warps=8
    )
    for _ in range(ROUNDS - 1):
        network.round(y, counts, other, False)
        y, other = other, y
    x = torch.empty_like(counts)
    network.round(y, counts, x, True)
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
