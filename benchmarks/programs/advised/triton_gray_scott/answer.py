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
BLOCK = 128
ROWS = 32
assert SUBSTEPS % 2 == 0 and SIZE % BLOCK == 0 and SIZE % ROWS == 0
BLOCKS = 10
STEPS_PER_BLOCK = 12
DEVICE = "cuda"


# u' = KEEP_U u + SPREAD_U (sum of neighbours) - R u v v + SOURCE, and the like for v
KEEP_U = tl.constexpr(1.0 - DT * (4.0 * DU + FEED))
KEEP_V = tl.constexpr(1.0 - DT * (4.0 * DV + FEED + KILL))
SPREAD_U = tl.constexpr(DT * DU)
SPREAD_V = tl.constexpr(DT * DV)
RATE = tl.constexpr(DT)
SOURCE = tl.constexpr(DT * FEED)


@triton.jit
def load_row(ptr, row, H, W, c0, c1, c2, c3, c4):
    base = ptr + (row % H) * W
    a = tl.load(base + c0)
    b = tl.load(base + c1)
    c = tl.load(base + c2)
    d = tl.load(base + c3)
    e = tl.load(base + c4)
    return a, b, c, d, e


@triton.jit
def euler(u, nu, su, wu, eu, v, nv, sv, wv, ev):
    """One explicit Euler step at a point, from the point and its four neighbours."""
    reaction = RATE * (u * v * v)
    u_new = KEEP_U * u + SOURCE + SPREAD_U * ((nu + su) + (wu + eu)) - reaction
    v_new = KEEP_V * v + SPREAD_V * ((nv + sv) + (wv + ev)) + reaction
    return u_new, v_new


@triton.jit
def two_steps_kernel(
    u_ptr, v_ptr, u_out, v_out, H, W,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, UNROLL: tl.constexpr,
):
    """Two Euler steps in one pass: march down ROWS rows, the first step kept in registers.

    Rows of the state are held at five columns (-2 to 2), of the first step at three.
    """
    first = tl.program_id(1) * ROWS
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c0 = (col + (W - 2)) % W
    c1 = (col + (W - 1)) % W
    c3 = (col + 1) % W
    c4 = (col + 2) % W
    up = first + H  # so that rows above stay positive

    _, _, zu2, _, _ = load_row(u_ptr, up - 2, H, W, c0, c1, col, c3, c4)
    _, _, zv2, _, _ = load_row(v_ptr, up - 2, H, W, c0, c1, col, c3, c4)
    _, yu1, yu2, yu3, _ = load_row(u_ptr, up - 1, H, W, c0, c1, col, c3, c4)
    _, yv1, yv2, yv3, _ = load_row(v_ptr, up - 1, H, W, c0, c1, col, c3, c4)
    au0, au1, au2, au3, au4 = load_row(u_ptr, up, H, W, c0, c1, col, c3, c4)
    av0, av1, av2, av3, av4 = load_row(v_ptr, up, H, W, c0, c1, col, c3, c4)
    bu0, bu1, bu2, bu3, bu4 = load_row(u_ptr, up + 1, H, W, c0, c1, col, c3, c4)
    bv0, bv1, bv2, bv3, bv4 = load_row(v_ptr, up + 1, H, W, c0, c1, col, c3, c4)
    cu0, cu1, cu2, cu3, cu4 = load_row(u_ptr, up + 2, H, W, c0, c1, col, c3, c4)
    cv0, cv1, cv2, cv3, cv4 = load_row(v_ptr, up + 2, H, W, c0, c1, col, c3, c4)

    # the first step at row -1 (p, one column) and at row 0 (q, three columns)
    pu, pv = euler(yu2, zu2, au2, yu1, yu3, yv2, zv2, av2, yv1, yv3)
    qu1, qv1 = euler(au1, yu1, bu1, au0, au2, av1, yv1, bv1, av0, av2)
    qu2, qv2 = euler(au2, yu2, bu2, au1, au3, av2, yv2, bv2, av1, av3)
    qu3, qv3 = euler(au3, yu3, bu3, au2, au4, av3, yv3, bv3, av2, av4)

    for group in range(0, ROWS, UNROLL):
        for part in tl.static_range(UNROLL):
            i = group + part
            # the row after the next, loaded ahead
            du0, du1, du2, du3, du4 = load_row(u_ptr, up + i + 3, H, W, c0, c1, col, c3, c4)
            dv0, dv1, dv2, dv3, dv4 = load_row(v_ptr, up + i + 3, H, W, c0, c1, col, c3, c4)
            # the first step at row i + 1
            ru1, rv1 = euler(bu1, au1, cu1, bu0, bu2, bv1, av1, cv1, bv0, bv2)
            ru2, rv2 = euler(bu2, au2, cu2, bu1, bu3, bv2, av2, cv2, bv1, bv3)
            ru3, rv3 = euler(bu3, au3, cu3, bu2, bu4, bv3, av3, cv3, bv2, bv4)
            # the second step at row i
            u_new, v_new = euler(qu2, pu, ru2, qu1, qu3, qv2, pv, rv2, qv1, qv3)
            place = (first + i) * W + col
            tl.store(u_out + place, u_new)
            tl.store(v_out + place, v_new)
            pu = qu2
            pv = qv2
            qu1 = ru1
            qu2 = ru2
            qu3 = ru3
            qv1 = rv1
            qv2 = rv2
            qv3 = rv3
            au1 = bu1
            au2 = bu2
            au3 = bu3
            av1 = bv1
            av2 = bv2
            av3 = bv3
            bu0 = cu0
            bu1 = cu1
            bu2 = cu2
            bu3 = cu3
            bu4 = cu4
            bv0 = cv0
            bv1 = cv1
            bv2 = cv2
            bv3 = cv3
            bv4 = cv4
            cu0 = du0
            cu1 = du1
            cu2 = du2
            cu3 = du3
            cu4 = du4
            cv0 = dv0
            cv1 = dv1
            cv2 = dv2
            cv3 = dv3
            cv4 = dv4


def advance_two(u, v, u_out, v_out):
    """Two explicit Euler steps, from u, v to u_out, v_out."""
    h, w = u.shape
    two_steps_kernel[(w // BLOCK, h // ROWS)](
        u, v, u_out, v_out, h, w, BLOCK=BLOCK, ROWS=ROWS, UNROLL=4, num_warps=4
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
        self.other = torch.empty_like(self.u), torch.empty_like(self.v)
        self.coverage = []

    def step(self):
        u, v = self.u, self.v
        u_out, v_out = self.other
        for _ in range(SUBSTEPS // 2):
            advance_two(u, v, u_out, v_out)
            u, v, u_out, v_out = u_out, v_out, u, v
        self.u, self.v = u, v
        self.other = u_out, v_out
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
