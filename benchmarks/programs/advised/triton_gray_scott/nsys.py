"""Gray-Scott reaction and diffusion on a periodic sheet, in Triton."""

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
BLOCK = 128  # columns of a program, one for each thread
ROWS = 64  # rows of a program
BLOCKS = 10
STEPS_PER_BLOCK = 12
DEVICE = "cuda"


@triton.jit
def react(uc, un, us, uw, ue, vc, vn, vs, vw, ve,
          DU: tl.constexpr, DV: tl.constexpr, FEED: tl.constexpr, LOSS: tl.constexpr, DT: tl.constexpr):
    """One explicit Euler step of a point from its neighbours."""
    lap_u = un + us + uw + ue - 4.0 * uc
    lap_v = vn + vs + vw + ve - 4.0 * vc
    reaction = uc * vc * vc
    u = uc + DT * (DU * lap_u - reaction + FEED * (1.0 - uc))
    v = vc + DT * (DV * lap_v + reaction - LOSS * vc)
    return u, v


@triton.jit
def sides(p, y, c0, c1, c3, c4, SIZE: tl.constexpr):
    q = p + (y & (SIZE - 1)) * SIZE
    return tl.load(q + c0), tl.load(q + c1), tl.load(q + c3), tl.load(q + c4)


@triton.jit
def centre(p, y, c2, SIZE: tl.constexpr):
    return tl.load(p + (y & (SIZE - 1)) * SIZE + c2)


@triton.jit
def two_steps_kernel(u_ptr, v_ptr, uo_ptr, vo_ptr, SIZE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
                     DU: tl.constexpr, DV: tl.constexpr, FEED: tl.constexpr, LOSS: tl.constexpr,
                     DT: tl.constexpr):
    """Two Euler steps of a strip of columns, a row at a time from top to bottom.

    Digits are columns, 2 the own one: a* is the sheet at row y - 2, b* at y - 1, c* at y;
    e*, f*, g* are the sheet a step later at rows y - 3, y - 2, y - 1. Row y - 2 is written two steps later.
    """
    top = tl.program_id(1) * ROWS
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c0 = (col + (SIZE - 2)) & (SIZE - 1)
    c1 = (col + (SIZE - 1)) & (SIZE - 1)
    c3 = (col + 1) & (SIZE - 1)
    c4 = (col + 2) & (SIZE - 1)

    # rows top - 2, top - 1, top: the first later row, top - 1
    au0, au1, au3, au4 = sides(u_ptr, top - 2, c0, c1, c3, c4, SIZE)
    av0, av1, av3, av4 = sides(v_ptr, top - 2, c0, c1, c3, c4, SIZE)
    au2 = centre(u_ptr, top - 2, col, SIZE)
    av2 = centre(v_ptr, top - 2, col, SIZE)
    bu0, bu1, bu3, bu4 = sides(u_ptr, top - 1, c0, c1, c3, c4, SIZE)
    bv0, bv1, bv3, bv4 = sides(v_ptr, top - 1, c0, c1, c3, c4, SIZE)
    bu2 = centre(u_ptr, top - 1, col, SIZE)
    bv2 = centre(v_ptr, top - 1, col, SIZE)
    cu0, cu1, cu3, cu4 = sides(u_ptr, top, c0, c1, c3, c4, SIZE)
    cv0, cv1, cv3, cv4 = sides(v_ptr, top, c0, c1, c3, c4, SIZE)
    cu2 = centre(u_ptr, top, col, SIZE)
    cv2 = centre(v_ptr, top, col, SIZE)
    eu2, ev2 = react(bu2, au2, cu2, bu1, bu3, bv2, av2, cv2, bv1, bv3, DU, DV, FEED, LOSS, DT)
    # row top + 1: the later row top, in three columns
    au1, au2, au3 = bu1, bu2, bu3
    av1, av2, av3 = bv1, bv2, bv3
    bu0, bu1, bu2, bu3, bu4 = cu0, cu1, cu2, cu3, cu4
    bv0, bv1, bv2, bv3, bv4 = cv0, cv1, cv2, cv3, cv4
    cu0, cu1, cu3, cu4 = sides(u_ptr, top + 1, c0, c1, c3, c4, SIZE)
    cv0, cv1, cv3, cv4 = sides(v_ptr, top + 1, c0, c1, c3, c4, SIZE)
    cu2 = centre(u_ptr, top + 1, col, SIZE)
    cv2 = centre(v_ptr, top + 1, col, SIZE)
    fu1, fv1 = react(bu1, au1, cu1, bu0, bu2, bv1, av1, cv1, bv0, bv2, DU, DV, FEED, LOSS, DT)
    fu2, fv2 = react(bu2, au2, cu2, bu1, bu3, bv2, av2, cv2, bv1, bv3, DU, DV, FEED, LOSS, DT)
    fu3, fv3 = react(bu3, au3, cu3, bu2, bu4, bv3, av3, cv3, bv2, bv4, DU, DV, FEED, LOSS, DT)
    au1, au2, au3 = bu1, bu2, bu3
    av1, av2, av3 = bv1, bv2, bv3
    bu0, bu1, bu2, bu3, bu4 = cu0, cu1, cu2, cu3, cu4
    bv0, bv1, bv2, bv3, bv4 = cv0, cv1, cv2, cv3, cv4
    # the own column of the next two rows is fetched ahead, the others then come from L1
    pu = centre(u_ptr, top + 2, col, SIZE)
    pv = centre(v_ptr, top + 2, col, SIZE)
    qu = centre(u_ptr, top + 3, col, SIZE)
    qv = centre(v_ptr, top + 3, col, SIZE)

    for i in range(ROWS // 4):
        for k in tl.static_range(4):
            row = top + i * 4 + k
            nu = centre(u_ptr, row + 4, col, SIZE)
            nv = centre(v_ptr, row + 4, col, SIZE)
            cu0, cu1, cu3, cu4 = sides(u_ptr, row + 2, c0, c1, c3, c4, SIZE)
            cv0, cv1, cv3, cv4 = sides(v_ptr, row + 2, c0, c1, c3, c4, SIZE)
            cu2 = pu
            cv2 = pv
            gu1, gv1 = react(bu1, au1, cu1, bu0, bu2, bv1, av1, cv1, bv0, bv2, DU, DV, FEED, LOSS, DT)
            gu2, gv2 = react(bu2, au2, cu2, bu1, bu3, bv2, av2, cv2, bv1, bv3, DU, DV, FEED, LOSS, DT)
            gu3, gv3 = react(bu3, au3, cu3, bu2, bu4, bv3, av3, cv3, bv2, bv4, DU, DV, FEED, LOSS, DT)
            u, v = react(fu2, eu2, gu2, fu1, fu3, fv2, ev2, gv2, fv1, fv3, DU, DV, FEED, LOSS, DT)
            tl.store(uo_ptr + row * SIZE + col, u)
            tl.store(vo_ptr + row * SIZE + col, v)
            eu2, ev2 = fu2, fv2
            fu1, fu2, fu3 = gu1, gu2, gu3
            fv1, fv2, fv3 = gv1, gv2, gv3
            au1, au2, au3 = bu1, bu2, bu3
            av1, av2, av3 = bv1, bv2, bv3
            bu0, bu1, bu2, bu3, bu4 = cu0, cu1, cu2, cu3, cu4
            bv0, bv1, bv2, bv3, bv4 = cv0, cv1, cv2, cv3, cv4
            pu, pv = qu, qv
            qu, qv = nu, nv


def advance_two(u, v):
    """Two explicit Euler steps."""
    u_new, v_new = torch.empty_like(u), torch.empty_like(v)
    two_steps_kernel[(SIZE // BLOCK, SIZE // ROWS)](
        u, v, u_new, v_new, SIZE=SIZE, ROWS=ROWS, BLOCK=BLOCK,
        DU=DU, DV=DV, FEED=FEED, LOSS=FEED + KILL, DT=DT, num_warps=BLOCK // 32,
    )
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
        for _ in range(SUBSTEPS // 2):
            u, v = advance_two(u, v)
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
