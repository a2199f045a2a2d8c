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
BLOCK = 1024
BLOCKS = 10
STEPS_PER_BLOCK = 12
DEVICE = "cuda"


@triton.jit
def laplacian_kernel(f_ptr, out_ptr, H, W, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = col < W
    up = tl.where(row == 0, H - 1, row - 1)
    down = tl.where(row == H - 1, 0, row + 1)
    left = tl.where(col == 0, W - 1, col - 1)
    right = tl.where(col == W - 1, 0, col + 1)
    c = tl.load(f_ptr + row * W + col, mask=mask, other=0.0)
    n = tl.load(f_ptr + up * W + col, mask=mask, other=0.0)
    s = tl.load(f_ptr + down * W + col, mask=mask, other=0.0)
    w = tl.load(f_ptr + row * W + left, mask=mask, other=0.0)
    e = tl.load(f_ptr + row * W + right, mask=mask, other=0.0)
    tl.store(out_ptr + row * W + col, n + s + w + e - 4.0 * c, mask=mask)


def laplacian(f):
    out = torch.empty_like(f)
    h, w = f.shape
    laplacian_kernel[(h, triton.cdiv(w, BLOCK))](f, out, h, w, BLOCK=BLOCK, num_warps=4)
    return out


def advance(u, v):
    """One explicit Euler step."""
    lap_u = laplacian(u)
    lap_v = laplacian(v)
    reaction = u * v * v
    u_new = u + DT * (DU * lap_u - reaction + FEED * (1.0 - u))
    v_new = v + DT * (DV * lap_v + reaction - (FEED + KILL) * v)
    return u_new, v_new


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
        self.coverage = []

    def step(self):
        u, v = self.u, self.v
        for _ in range(SUBSTEPS):
            u, v = advance(u, v)
        self.u, self.v = u, v
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
