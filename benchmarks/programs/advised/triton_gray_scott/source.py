"""Gray-Scott reaction and diffusion on a periodic sheet, two Euler steps per Triton launch."""

import json
import statistics
import time

import torch
import triton
import triton.language as tl

SIZE = 4096
SUBSTEPS = 12
DU, DV = 0.16, 0.08
FEED, KILL = 0.035, 0.060
DT = 1.0
BLOCK = 128
ROWS = 32
BLOCKS = 10
STEPS_PER_BLOCK = 12
DEVICE = "cuda"

assert SUBSTEPS % 2 == 0 and SIZE % BLOCK == 0 and SIZE % ROWS == 0

K_DU = tl.constexpr(DU)
K_DV = tl.constexpr(DV)
K_FEED = tl.constexpr(FEED)
K_LOSS = tl.constexpr(FEED + KILL)
K_DT = tl.constexpr(DT)


@triton.jit
def load_row(u_ptr, v_ptr, row, c0, c1, c2, c3, c4, H: tl.constexpr, W: tl.constexpr):
    """A row of both species (periodic) at column shifts -2 .. 2."""
    base = ((row + H) % H) * W
    return (
        tl.load(u_ptr + (base + c0)),
        tl.load(u_ptr + (base + c1)),
        tl.load(u_ptr + (base + c2)),
        tl.load(u_ptr + (base + c3)),
        tl.load(u_ptr + (base + c4)),
        tl.load(v_ptr + (base + c0)),
        tl.load(v_ptr + (base + c1)),
        tl.load(v_ptr + (base + c2)),
        tl.load(v_ptr + (base + c3)),
        tl.load(v_ptr + (base + c4)),
    )


@triton.jit
def euler(u, un, us, uw, ue, v, vn, vs, vw, ve):
    lap_u = un + us + uw + ue - 4.0 * u
    lap_v = vn + vs + vw + ve - 4.0 * v
    reaction = u * v * v
    u_new = u + K_DT * (K_DU * lap_u - reaction + K_FEED * (1.0 - u))
    v_new = v + K_DT * (K_DV * lap_v + reaction - K_LOSS * v)
    return u_new, v_new


@triton.jit
def first_step(a, b, n):
    """Row b after one step, at column shifts -1, 0, 1 (a above, n below)."""
    u0, v0 = euler(b[1], a[1], n[1], b[0], b[2], b[6], a[6], n[6], b[5], b[7])
    u1, v1 = euler(b[2], a[2], n[2], b[1], b[3], b[7], a[7], n[7], b[6], b[8])
    u2, v2 = euler(b[3], a[3], n[3], b[2], b[4], b[8], a[8], n[8], b[7], b[9])
    return u0, u1, u2, v0, v1, v2


@triton.jit
def two_steps_kernel(
    u_ptr, v_ptr, uo_ptr, vo_ptr, part_ptr,
    H: tl.constexpr, W: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, REDUCE: tl.constexpr,
):
    r0 = tl.program_id(1) * ROWS
    c2 = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c0 = tl.where(c2 < 2, c2 - 2 + W, c2 - 2)
    c1 = tl.where(c2 < 1, c2 - 1 + W, c2 - 1)
    c3 = tl.where(c2 >= W - 1, c2 + 1 - W, c2 + 1)
    c4 = tl.where(c2 >= W - 2, c2 + 2 - W, c2 + 2)

    x0 = load_row(u_ptr, v_ptr, r0 - 2, c0, c1, c2, c3, c4, H, W)
    x1 = load_row(u_ptr, v_ptr, r0 - 1, c0, c1, c2, c3, c4, H, W)
    a = load_row(u_ptr, v_ptr, r0, c0, c1, c2, c3, c4, H, W)
    b = load_row(u_ptr, v_ptr, r0 + 1, c0, c1, c2, c3, c4, H, W)
    n = load_row(u_ptr, v_ptr, r0 + 2, c0, c1, c2, c3, c4, H, W)
    p = first_step(x0, x1, a)  # row r0 - 1
    q = first_step(x1, a, b)  # row r0
    acc = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(ROWS):
        # a, b, n are the rows r0 + k, + 1, + 2; the row after them is fetched
        # ahead of this iteration's arithmetic and stores.
        if k < ROWS - 1:
            ahead = load_row(u_ptr, v_ptr, r0 + (k + 3), c0, c1, c2, c3, c4, H, W)
        m = first_step(a, b, n)
        u_new, v_new = euler(q[1], p[1], m[1], q[0], q[2], q[4], p[4], m[4], q[3], q[5])
        tl.store(uo_ptr + ((r0 + k) * W + c2), u_new)
        tl.store(vo_ptr + ((r0 + k) * W + c2), v_new)
        if REDUCE:
            acc += v_new
        p = q
        q = m
        if k < ROWS - 1:
            a = b
            b = n
            n = ahead
    if REDUCE:
        tl.store(part_ptr + tl.program_id(1) * (W // BLOCK) + tl.program_id(0), tl.sum(acc, axis=0))


def initial_state(generator):
    """Rest state with square drops of the second species."""
    u = torch.ones(SIZE, SIZE)
    v = torch.zeros(SIZE, SIZE)
    corners = torch.randint(0, SIZE - 32, (SIZE // 8, 2), generator=generator)
    sizes = torch.randint(8, 32, (SIZE // 8,), generator=generator)
    for (y, x), s in zip(corners.tolist(), sizes.tolist()):
        u[y : y + s, x : x + s] = 0.5
        v[y : y + s, x : x + s] = 0.25
    return u.to(DEVICE), v.to(DEVICE)


class Sheet:
    def __init__(self):
        self.u, self.v = initial_state(torch.Generator().manual_seed(8))
        self.spare_u = torch.empty_like(self.u)
        self.spare_v = torch.empty_like(self.v)
        self.grid = (SIZE // BLOCK, SIZE // ROWS)
        self.partial = torch.zeros(self.grid[0] * self.grid[1], device=DEVICE)
        self.coverage = []

    def step(self):
        u, v, u2, v2 = self.u, self.v, self.spare_u, self.spare_v
        for s in range(0, SUBSTEPS, 2):
            two_steps_kernel[self.grid](
                u, v, u2, v2, self.partial,
                H=SIZE, W=SIZE, ROWS=ROWS, BLOCK=BLOCK, REDUCE=s + 2 >= SUBSTEPS,
                num_warps=4,
            )
            u, v, u2, v2 = u2, v2, u, v
        self.u, self.v, self.spare_u, self.spare_v = u, v, u2, v2
        # the last launch left the sum of v of every tile
        self.coverage.append(self.partial.sum() / (SIZE * SIZE))


def main():
    torch.manual_seed(0)
    sheet = Sheet()
    for _ in range(5):
        sheet.step()
    times = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            sheet.step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    coverage = torch.stack(sheet.coverage)
    checksum = 100.0 * coverage.mean().item() + sheet.u.mean().item()
    print(
        json.dumps(
            {
                "program": "triton_gray_scott",
                "steps": len(coverage),
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
