"""Gray-Scott reaction and diffusion on a periodic sheet, Laplacian in Triton."""

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
BLOCKS = 10
STEPS_PER_BLOCK = 12
DEVICE = "cuda"


def tile(rows, cols, warps):
    return triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)


@triton.autotune(
    configs=[
        tile(1, 1024, 4),
        tile(2, 512, 4),
        tile(4, 256, 4),
        tile(8, 128, 4),
        tile(8, 128, 8),
        tile(16, 64, 4),
        tile(16, 128, 8),
    ],
    key=["H", "W"],
)
@triton.jit
def advance_kernel(
    u_ptr,
    v_ptr,
    u_out_ptr,
    v_out_ptr,
    H: tl.constexpr,
    W: tl.constexpr,
    DU: tl.constexpr,
    DV: tl.constexpr,
    FEED: tl.constexpr,
    KILL: tl.constexpr,
    DT: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """One explicit Euler step of both species; H and W are multiples of the tile."""
    row = (tl.program_id(1) * ROWS + tl.arange(0, ROWS))[:, None]
    col = (tl.program_id(0) * COLS + tl.arange(0, COLS))[None, :]
    up = tl.where(row == 0, H - 1, row - 1)
    down = tl.where(row == H - 1, 0, row + 1)
    left = tl.where(col == 0, W - 1, col - 1)
    right = tl.where(col == W - 1, 0, col + 1)
    at = row * W + col
    at_n = up * W + col
    at_s = down * W + col
    at_w = row * W + left
    at_e = row * W + right
    u = tl.load(u_ptr + at)
    v = tl.load(v_ptr + at)
    lap_u = tl.load(u_ptr + at_n) + tl.load(u_ptr + at_s)
    lap_u = lap_u + tl.load(u_ptr + at_w) + tl.load(u_ptr + at_e) - 4.0 * u
    lap_v = tl.load(v_ptr + at_n) + tl.load(v_ptr + at_s)
    lap_v = lap_v + tl.load(v_ptr + at_w) + tl.load(v_ptr + at_e) - 4.0 * v
    reaction = u * v * v
    u_new = u + DT * (DU * lap_u - reaction + FEED * (1.0 - u))
    v_new = v + DT * (DV * lap_v + reaction - (FEED + KILL) * v)
    tl.store(u_out_ptr + at, u_new)
    tl.store(v_out_ptr + at, v_new)


def advance(u, v, u_out, v_out):
    """One explicit Euler step."""
    h, w = u.shape
    advance_kernel[lambda meta: (w // meta["COLS"], h // meta["ROWS"])](
        u, v, u_out, v_out, h, w, DU, DV, FEED, KILL, DT
    )


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
        self.u_next, self.v_next = torch.empty_like(self.u), torch.empty_like(self.v)
        self.coverage = []

    def step(self):
        u, v, u_next, v_next = self.u, self.v, self.u_next, self.v_next
        for _ in range(SUBSTEPS):
            advance(u, v, u_next, v_next)
            u, v, u_next, v_next = u_next, v_next, u, v
        self.u, self.v, self.u_next, self.v_next = u, v, u_next, v_next
        self.coverage.append(v.mean())


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
