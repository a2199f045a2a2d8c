"""The second held-out set: 26 pairs and four kernels at a roof, each pair with one planted cause
that its twin lacks.

The kernels were written blind, by somebody else who knew no rule of the toolkit either, after what
the first set showed had been fixed, and scored before anybody who writes rules had seen a source,
a report or truth.json. That holds no longer: see ../README.md. Each function below says what its
kernels compute and what is planted in `mNN_a`; truth.json says why, and what else would be a fair
answer. `../harness.py` says how to run it. At most 6 GB of GPU memory; no cuBLAS or cuRAND."""

import sys
from pathlib import Path

import cupy as cp
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from harness import RNG, Bench, F, I, U, small, spread, two, uniform, whole  # noqa: E402

bench = Bench(HERE, arch="sm_90a", letter="m")
pair = bench.pair


def bit_reversed(bits):
    i = cp.arange(1 << bits, dtype=U)
    r = cp.zeros_like(i)
    for _ in range(bits):
        r = r << U(1) | i & U(1)
        i >>= U(1)
    return r


def product(a, b, n, rows=4):
    """The first rows of a b, without a library."""
    return (a[: rows * n].reshape(rows, n, 1) * b.reshape(1, n, n)).sum(1).ravel()


def bf16(n):
    return (uniform(n, -1, 1).view(U) >> U(16)).astype(np.uint16)


def widen(bits):
    return (bits.astype(U) << U(16)).view(F)


def tables_by_key(table):
    t = table.reshape(-1, 2)
    sums = cp.zeros(65537, F)
    sums[t[:, 0].astype(I)] = cp.ascontiguousarray(t[:, 1]).view(F)
    return sums[1:]


@bench.case(1)
def m01() -> None:
    """Sums by key in an open-addressing hash table (2^18 slots of key+1 and sum); half of the keys
    are one key: atomic-contention."""
    n = 1 << 23
    keys = spread(
        np.where(RNG.random(1 << 22) < 0.5, 12345, RNG.integers(0, 65536, 1 << 22)).astype(U), n
    )
    w = small(n, 4)
    pair(
        1,
        [(n // 2048, 256)] * 2,
        lambda y, k: (keys, w, y, U(12345)),
        two(2 << 18, U),
        0,
        reset=(True, True),
        post=(tables_by_key,) * 2,
        expect=lambda: cp.bincount(
            keys.astype(I), weights=w.astype(cp.float64), minlength=65536
        ).astype(F),
    )


@bench.case(2)
def m02() -> None:
    """K-means assignment, 16 dimensions, 256 centroids: global-instruction-pressure."""
    n = 1 << 19
    x, cent = uniform(16 * n), uniform(4096)
    pair(2, [(n // 256, 256), (n // 512, 256)], lambda y, k: (x, cent, y, I(n)), two(n, I), 0)


@bench.case(3)
def m03() -> None:
    """Digit counts of a radix sort, 16384 keys a block, counters of each thread in shared memory:
    shared-bank-conflict."""
    n = 1 << 25
    raw = RNG.integers(0, 1 << 32, 1 << 22, dtype=U)
    keys = spread(np.where(RNG.random(1 << 22) < 0.9, raw & U(0xFFFF), raw).astype(U), n)

    def ref3():
        d = ((keys >> U(16)) & U(15)).reshape(-1, 16384)
        return cp.stack([(d == U(j)).sum(1) for j in range(16)], axis=1).ravel().astype(U)

    pair(
        3, [(n // 16384, 256)] * 2, lambda y, k: (keys, y, I(16)), two(n // 1024, U), 0, expect=ref3
    )


@bench.case(4)
def m04() -> None:
    """Bit-reversed order of 2^24 complex numbers, scaled: uncoalesced-global-access."""
    n = 1 << 24
    x = uniform(2 * n)
    pair(
        4,
        [(n // 256, 256), (n // 1024, 256)],
        lambda y, k: (x, y, F(0.5)),
        two(2 * n),
        0,
        expect=lambda: (x.reshape(-1, 2)[bit_reversed(24)[: 1 << 20]] * F(0.5)).ravel(),
    )


@bench.case(5)
def m05() -> None:
    """Y = A' x: grid-too-small."""
    rows, cols = 8192, 4096
    a, x = small(rows * cols, 4), small(rows, 4)
    pair(
        5,
        [(16, 256), ((16, 64), 256)],
        lambda y, k: (a, x, y, I(rows), I(cols)),
        two(cols),
        0,
        reset=(False, True),
        expect=lambda: (a.reshape(rows, cols) * x[:, None]).sum(0),
    )


@bench.case(6)
def m06() -> None:
    """CSR product, a warp for each piece of a row: load-imbalance."""
    lens = np.full(131072, 64)
    lens[1000] = 131072
    ends = np.cumsum(lens)
    starts, ids = ends - lens, np.arange(lens.size)
    col = cp.asarray(
        ((np.repeat(8 * ids - starts, lens) + np.arange(ends[-1])) & ((1 << 20) - 1)).astype(I)
    )
    val, x = small(int(ends[-1]), 4), small(1 << 20, 4)
    head, tail = slice(0, 1000), slice(1001, None)
    cuts = np.arange(starts[1000], ends[1000], 512)
    cut = [
        np.concatenate(v)
        for v in (
            (starts[head], cuts, starts[tail]),
            (ends[head], cuts + 512, ends[tail]),
            (ids[head], np.full(cuts.size, 1000), ids[tail]),
        )
    ]
    pieces = [[cp.asarray(v.astype(I)) for v in one] for one in ((starts, ends, ids), cut)]

    def ref6():
        run = cp.concatenate(
            [cp.zeros(1, cp.float64), cp.cumsum((val * x[col]).astype(cp.float64))]
        )
        return (run[cp.asarray(ends)] - run[cp.asarray(starts)]).astype(F)

    pair(
        6,
        [(-(-p[0].size // 8), 256) for p in pieces],
        lambda y, k: (*pieces[k], col, val, x, y, I(pieces[k][0].size)),
        two(lens.size),
        0,
        reset=(False, True),
        expect=ref6,
    )


@bench.case(7)
def m07() -> None:
    """Sum over all j <= i of (x_i - x_j)^4: a triangle of work: load-imbalance."""
    n = 132 * 512
    x = uniform(n, -1, 1)
    pair(
        7,
        [(132, 512)] * 2,
        lambda y, k: (x, y),
        two(n),
        1e-4,
        expect=lambda: cp.tril((x[:1024, None] - x[None, :1024]) ** 4).sum(1),
    )


@bench.case(8)
def m08() -> None:
    """Eight materials, a formula for each; `order` says which element a thread takes:
    warp-divergence."""
    n = 1 << 23
    x, kind = uniform(n), whole(n, 8)
    block = cp.asnumpy(kind[: 1 << 22]).reshape(-1, 2048)
    by_kind = (
        np.argsort(block, axis=1, kind="stable") + np.arange(block.shape[0])[:, None] * 2048
    ).ravel()
    orders = (
        cp.arange(n, dtype=I),
        cp.concatenate([cp.asarray(by_kind.astype(I)) + I(k << 22) for k in range(n >> 22)]),
    )
    pair(8, [(n // 2048, 256)] * 2, lambda y, k: (x, kind, orders[k], y), two(n), 0)


@bench.case(9)
def m09() -> None:
    """Windowed signal; the 256 weights of a tile go through shared memory: barrier-imbalance."""
    n = 528 * 64 * 256
    x, poly = uniform(n), uniform(128)
    bench.constant("c_window", poly)

    def ref9():
        u, w = cp.arange(64 * 256, dtype=cp.float64) / (64 * 256), cp.zeros(64 * 256, cp.float64)
        for c in poly.tolist():
            w = w * u + c
        w = w.reshape(64, 256)
        return (
            (x.reshape(528, 64, 256) * (w + 0.5 * cp.roll(w, -1, axis=1))[None]).ravel().astype(F)
        )

    pair(9, [(528, 256)] * 2, lambda y, k: (x, y, I(64)), two(n), 1e-4, expect=ref9)


@bench.case(10)
def m10() -> None:
    """Single-precision matrix product, 8 x 8 per thread: local-memory-traffic."""
    a, b = uniform(1 << 22, -1, 1), uniform(1 << 22, -1, 1)
    pair(
        10,
        [((16, 16), 256)] * 2,
        lambda y, k: (a, b, y, I(2048)),
        two(1 << 22),
        1e-4,
        expect=lambda: product(a, b, 2048),
    )


@bench.case(11)
def m11() -> None:
    """Transposition: shared-bank-conflict."""
    x = uniform(1 << 24)
    pair(
        11,
        [((128, 128), (32, 8))] * 2,
        lambda y, k: (x, y, I(4096)),
        two(1 << 24),
        0,
        expect=lambda: cp.ascontiguousarray(x.reshape(4096, 4096).T).ravel(),
    )


@bench.case(12)
def m12() -> None:
    """Threshold of an 8-bit image: narrow-access."""
    n = 1 << 27
    x = whole(n, 256, np.uint8)
    pair(
        12,
        [(n // 256, 256), (n // 4096, 256)],
        lambda y, k: (x, y, U(100)),
        two(n, np.uint8),
        0,
        expect=lambda: (x[: 1 << 24] > 100).astype(np.uint8) * np.uint8(255),
    )


@bench.case(13)
def m13() -> None:
    """Energy of a particle with its next 32: double-precision."""
    n = 1 << 21
    p13 = uniform(4 * (n + 32), 0, 4)

    def ref13():
        p, m = p13.reshape(-1, 4)[:, :3].astype(cp.float64), 1 << 16
        e = cp.zeros(m, cp.float64)
        for k in range(1, 33):
            r2 = ((p[:m] - p[k : m + k]) ** 2).sum(1) + 0.3
            s6, c = r2**-3.0, 0.02 * r2
            e += 4 * (s6 * s6 - s6) * (1 - c * c * (3 - 2 * c)) + 0.1 / r2
        return e.astype(F)

    pair(13, [(n // 256, 256)] * 2, lambda y, k: (p13, y), two(n), 1e-4, expect=ref13)


@bench.case(14)
def m14() -> None:
    """(n, h, w, c) -> (n, w, h, c): integer-arithmetic."""
    n = 1 << 24
    x, L = uniform(n), np.int64
    pair(
        14,
        [(n // 256, 256), ((32, 128, 16), (64, 4))],
        lambda y, k: (x, y, L(128), L(128), L(64)),
        two(n),
        0,
        expect=lambda: cp.ascontiguousarray(
            x.reshape(16, 128, 128, 64).transpose(0, 2, 1, 3)
        ).ravel(),
    )


@bench.case(15)
def m15() -> None:
    """CRC-32 of 64 bytes per thread, words interleaved: constant-cache-divergence."""
    n = 1 << 20
    x = whole(16 * n, 1 << 32, U)
    t = np.arange(256, dtype=U)
    for _ in range(8):
        t = np.where(t & 1, U(0xEDB88320) ^ (t >> U(1)), t >> U(1)).astype(U)
    t = cp.asarray(t)
    bench.constant("c_crc", t)

    def ref15():
        crc = cp.full(n, 0xFFFFFFFF, U)
        for k in range(16):
            for e in range(4):
                crc = t[((crc ^ (x[k * n : (k + 1) * n] >> U(8 * e))) & U(255)).astype(I)] ^ (
                    crc >> U(8)
                )
        return ~crc

    pair(15, [(n // 256, 256)] * 2, lambda y, k: (x, t, y, I(n)), two(n, U), 0, expect=ref15)


@bench.case(16)
def m16() -> None:
    """64 harmonics: special-function-pressure."""
    n = 1 << 23
    x, amp = uniform(n, 0.3, 2.8), uniform(64, -1, 1)
    bench.constant("c_amp", amp)
    pair(
        16,
        [(n // 256, 256)] * 2,
        lambda y, k: (x, y),
        two(n),
        1e-3,
        expect=lambda: sum(
            a * cp.cos(j * x[: 1 << 20].astype(cp.float64)) for j, a in enumerate(amp.tolist())
        ).astype(F),
    )


@bench.case(17)
def m17() -> None:
    """Bf16 matrix product: tensor-core-unused."""
    a, b = bf16(1 << 22), bf16(1 << 22)
    pair(
        17,
        [((16, 16), 256)] * 2,
        lambda y, k: (a, b, y, I(2048)),
        two(1 << 22),
        1e-3,
        expect=lambda: product(widen(a[: 4 * 2048]), widen(b), 2048),
    )


@bench.case(18)
def m18() -> None:
    """Gather through a list of indices (whole lines of 128 bytes in another order):
    memory-latency."""
    n = 1 << 25
    i = cp.arange(n, dtype=I)
    idx = (i & I(-2048)) | (((i >> 5) * I(29) + I(7)) & I(63)) << 5 | (i & I(31))
    del i
    x = uniform(n)
    pair(
        18,
        [(528, 256)] * 2,
        lambda y, k: (idx, x, y, I(n)),
        two(n),
        0,
        expect=lambda: x[idx[: 1 << 22]] * F(0.5),
    )


@bench.case(19)
def m19() -> None:
    """Sums of squares by bulk copies of 16 KiB into a ring of eight buffers: async-copy-wait."""
    x = uniform(1 << 26)
    pair(
        19,
        [(132, 128)] * 2,
        lambda y, k: (x, y, I(16384)),
        two(1 << 21),
        1e-5,
        dynamic=(131072,) * 2,
        expect=lambda: (x[: 1 << 24].reshape(-1, 8, 128, 4) ** 2).sum((1, 3)).ravel(),
    )


@bench.case(20)
def m20() -> None:
    """Eight logistic maps a thread: instruction-dependency."""
    n = 132 * 128 * 8
    x = uniform(n, 0.1, 0.9)
    pair(20, [(132, 128)] * 2, lambda y, k: (x, y, I(8192)), two(n), 0)


@bench.case(21)
def m21() -> None:
    """An interpreter with sixteen long instructions, each warp at another one:
    instruction-cache."""
    n = 1056 * 256
    x = uniform(2 * n)
    pair(21, [(1056, 256)] * 2, lambda y, k: (x, y, I(n), I(8)), two(2 * n), 0)


@bench.case(22)
def m22() -> None:
    """Three-point smoothing of pieces of 256: low-occupancy."""
    n = 1 << 25
    x = uniform(n)

    def ref22():
        v = x[: 1 << 22].reshape(-1, 256)
        return (
            F(0.25)
            * (cp.concatenate([v[:, :1], v[:, :-1]], 1) + cp.concatenate([v[:, 1:], v[:, -1:]], 1))
            + F(0.5) * v
        ).ravel()

    pair(
        22,
        [(n // 256, 64)] * 2,
        lambda y, k: (x, y),
        two(n),
        1e-6,
        dynamic=(102400, 1024),
        expect=ref22,
    )


@bench.case(23)
def m23() -> None:
    """Field of 8192 sources at 163840 points: tail-effect."""
    n = 163840
    p, s = uniform(4 * n), uniform(4 * 8192)

    def ref23():
        d = s.reshape(1, -1, 4)[:, :, :3] - p[:1024].reshape(-1, 1, 4)[:, :, :3]
        inv = 1 / cp.sqrt((d * d).sum(2) + F(0.01))
        return (s.reshape(1, -1, 4)[:, :, 3] * inv**3 * d[:, :, 0]).sum(1)

    pair(
        23,
        [(160, 1024), (1280, 128)],
        lambda y, k: (p, s, y, I(n)),
        two(3 * n),
        1e-3,
        dynamic=(131072, 0),
        expect=ref23,
    )


@bench.case(24)
def m24() -> None:
    """One time step of particles of 48 bytes: uncoalesced-global-access."""
    n = 3 << 20
    aos = uniform(12 * n, 0.5, 1.5)
    soa = cp.ascontiguousarray(aos.reshape(n, 12).T).ravel()

    def ref():
        b, dt = aos[: 12 << 16].reshape(-1, 12), F(0.01)
        v = b[:, 6:9] * (b[:, 10] * dt / b[:, 9])[:, None] + b[:, 3:6] * b[:, 11:12]
        return cp.concatenate([b[:, :3] + v * dt, v], 1).ravel()

    pair(
        24,
        [(n // 256, 256)] * 2,
        lambda y, k: ((aos, soa)[k], y, F(0.01)),
        two(6 * n),
        1e-5,
        expect=ref,
        post=(None, lambda y: cp.ascontiguousarray(y.reshape(6, n).T).ravel()),
    )


@bench.case(25)
def m25() -> None:
    """Squared distances of all pairs, 64 dimensions, a column a dimension: missing-data-reuse."""
    a, b = uniform(1 << 18), uniform(1 << 18)
    pair(
        25,
        [((128, 512), (32, 8)), ((64, 64), 256)],
        lambda y, k: (a, b, y, I(4096)),
        two(1 << 24),
        1e-5,
        expect=lambda: ((a.reshape(64, -1, 1)[:, :16] - b.reshape(64, 1, -1)) ** 2).sum(0).ravel(),
    )


@bench.case(26)
def m26() -> None:
    """Single-precision product, one result per thread from shared memory:
    shared-instruction-pressure."""
    m = 1536
    a, b = uniform(m * m, -1, 1), uniform(m * m, -1, 1)
    pair(
        26,
        [((48, 48), 1024), ((12, 12), 256)],
        lambda y, k: (a, b, y, I(m)),
        two(m * m),
        1e-4,
        expect=lambda: product(a, b, m),
    )


@bench.case(27)
def m27() -> None:
    """Sums of 8192 floats: dram-bandwidth (a roof)."""
    n = 3 << 25
    x = small(n, 8)
    pair(
        27,
        [(n // 8192, 256)],
        lambda y, k: (x, y),
        (cp.zeros(n // 8192, F),),
        0,
        expect=lambda: x.reshape(-1, 8192).sum(1),
    )


@bench.case(28)
def m28() -> None:
    """Wgmma m64n128k16, A in registers, B in shared memory: tensor-pipe (a roof)."""
    r28 = (whole(264 * 64, 8, F) / F(8)).astype(cp.float16)

    def ref28():
        t = cp.arange(256)
        g = (t & 127) // 32 * 16 + (t & 31) // 4
        r = r28.astype(F).reshape(264, 64)
        return (F(32 * 512) * (r[:, g] + 2 * r[:, g + 8])).ravel().astype(F)

    pair(
        28, [(264, 256)], lambda y, k: (r28, y, I(512)), (cp.zeros(264 * 256, F),), 0, expect=ref28
    )


@bench.case(29)
def m29() -> None:
    """Exchange between warps of a block, all of it through shared memory, 16 bytes per lane:
    l1-bandwidth (a roof)."""
    n = 792 * 4096
    x = uniform(n)

    def ref29():
        v, t = x[: 8 * 4096].reshape(8, 4, 256, 4), cp.arange(256)
        for r in range(256):
            v = v * F(0.75) + F(0.25) * cp.roll(v[:, :, t ^ (32 << (r & 1)), :], -1, axis=3)
        return v.ravel()

    pair(29, [(792, 256)], lambda y, k: (x, y, I(256)), (cp.zeros(n, F),), 1e-4, expect=ref29)


@bench.case(30)
def m30() -> None:
    """A ramp, written once: dram-bandwidth (a roof)."""
    n = 3 << 23
    pair(
        30,
        [(n // 1024, 256)],
        lambda y, k: (y, F(0.125)),
        (cp.zeros(4 * n, F),),
        0,
        expect=lambda: (
            (cp.arange(1 << 20) & 0xFFFF).astype(F)[:, None] * F(0.125)
            + cp.asarray([0, 0.25, 0.5, 0.75], F)[None]
        ).ravel(),
    )


if __name__ == "__main__":
    sys.exit(bench.main())
