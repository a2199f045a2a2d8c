"""Depth-averaged run-out of a lahar down a valley flank.

Rusanov fluxes, bed slope and turbulent friction on a regular grid, advanced by
Heun's method with a step from the CFL condition. Volume, depth at the lower
gauge line and model time are recorded at every step.
"""
import json
import time

import cupy as cp
import numpy as np

NAME = "cupy_lahar_runout"
NY, NX = 4096, 3072
DX = 5.0
CFL = 0.35
ALARM = 0.6
WARMUP = 60
BLOCKS = 8
BLOCK_STEPS = 10

PREAMBLE = r'''
__device__ inline void face(float hl, float ul, float vl, float hr, float ur, float vr,
                            float &f0, float &f1, float &f2) {
    const float g = 9.81f;
    float cl = fabsf(ul) + sqrtf(g * hl);
    float cr = fabsf(ur) + sqrtf(g * hr);
    float c = fmaxf(cl, cr);
    f0 = 0.5f * (hl * ul + hr * ur - c * (hr - hl));
    f1 = 0.5f * (hl * ul * ul + hr * ur * ur + 0.5f * g * (hl * hl + hr * hr)
                 - c * (hr * ur - hl * ul));
    f2 = 0.5f * (hl * ul * vl + hr * ur * vr - c * (hr * vr - hl * vl));
}
'''

BODY = r'''
    int y = (int)i / nx;
    int x = (int)i - y * nx;
    int k = (int)i;
    int w = x > 0 ? k - 1 : k;
    int e = x < nx - 1 ? k + 1 : k;
    int nb = y > 0 ? k - nx : k;
    int s = y < ny - 1 ? k + nx : k;
    float hc = h[k], hw = h[w], he = h[e], hn_ = h[nb], hs = h[s];
    float rc = 1.0f / hc, rw = 1.0f / hw, re = 1.0f / he, rn = 1.0f / hn_, rs = 1.0f / hs;
    float uc = qx[k] * rc, uw = qx[w] * rw, ue = qx[e] * re, un = qx[nb] * rn, us = qx[s] * rs;
    float vc = qy[k] * rc, vw = qy[w] * rw, ve = qy[e] * re, vn = qy[nb] * rn, vs = qy[s] * rs;
    float a0, a1, a2, b0, b1, b2, c0, c1, c2, d0, d1, d2;
    face(hw, uw, vw, hc, uc, vc, a0, a1, a2);
    face(hc, uc, vc, he, ue, ve, b0, b1, b2);
    face(hn_, vn, un, hc, vc, uc, c0, c1, c2);
    face(hc, vc, uc, hs, vs, us, d0, d1, d2);
    float lam = dt / 5.0f;
    float depth = hc - lam * (b0 - a0 + d0 - c0);
    float mx = hc * uc - lam * (b1 - a1 + d2 - c2) - 0.5f * 9.81f * lam * hc * (z[e] - z[w]);
    float my = hc * vc - lam * (b2 - a2 + d1 - c1) - 0.5f * 9.81f * lam * hc * (z[s] - z[nb]);
    depth = fmaxf(depth, 0.02f);
    float speed = sqrtf(mx * mx + my * my) / depth;
    float drag = 1.0f / (1.0f + dt * 0.03f * speed / depth);
    mx *= drag;
    my *= drag;
'''

predictor = cp.ElementwiseKernel(
    'raw float32 h, raw float32 qx, raw float32 qy, raw float32 z, float32 dt, int32 ny, int32 nx',
    'float32 h1, float32 qx1, float32 qy1',
    BODY + 'h1 = depth; qx1 = mx; qy1 = my;',
    'lahar_predictor', preamble=PREAMBLE)

corrector = cp.ElementwiseKernel(
    'raw float32 h, raw float32 qx, raw float32 qy, raw float32 z, float32 dt, int32 ny, int32 nx,'
    ' float32 h0, float32 qx0, float32 qy0',
    'float32 h1, float32 qx1, float32 qy1',
    BODY + 'h1 = 0.5f * (h0 + depth); qx1 = 0.5f * (qx0 + mx); qy1 = 0.5f * (qy0 + my);',
    'lahar_corrector', preamble=PREAMBLE)

celerity = cp.ElementwiseKernel(
    'float32 h, float32 qx, float32 qy', 'float32 c',
    'c = fmaxf(fabsf(qx), fabsf(qy)) / h + sqrtf(9.81f * h);',
    'lahar_celerity')


def valley():
    rng = np.random.default_rng(2024)
    y = np.linspace(0.0, 1.0, NY, dtype=np.float32)[:, None]
    x = np.linspace(-1.0, 1.0, NX, dtype=np.float32)[None, :]
    bed = 600.0 * (1.0 - y) ** 2 + 40.0 * x * x
    for _ in range(6):
        ky, kx = rng.uniform(2.0, 9.0, 2)
        bed = bed + np.float32(rng.uniform(0.5, 2.0)) * np.sin(np.float32(ky) * y * 3) * np.cos(np.float32(kx) * x)
    depth = 0.1 + 4.0 * np.exp(-((y - 0.25) / 0.1) ** 2 - (x / 0.3) ** 2)
    return bed.astype(np.float32).ravel(), depth.astype(np.float32).ravel()


class Lahar:
    def __init__(self):
        bed, depth = valley()
        self.z = cp.asarray(bed)
        self.h = cp.asarray(depth)
        self.qx = cp.zeros_like(self.h)
        self.qy = cp.zeros_like(self.h)
        self.h1 = cp.empty_like(self.h)
        self.qx1 = cp.empty_like(self.h)
        self.qy1 = cp.empty_like(self.h)
        self.c = cp.empty_like(self.h)
        steps = WARMUP + BLOCKS * BLOCK_STEPS
        self.volume = np.zeros(steps, dtype=np.float32)
        self.gauge = np.zeros(steps, dtype=np.float32)
        self.clock = np.zeros(steps, dtype=np.float32)
        self.t = 0.0
        self.n = 0

    def step(self):
        celerity(self.h, self.qx, self.qy, self.c)
        dt = CFL * DX / float(self.c.max())
        predictor(self.h, self.qx, self.qy, self.z, dt, NY, NX,
                  self.h1, self.qx1, self.qy1)
        self.gauge[self.n] = float(self.h1[-NX:].max())
        corrector(self.h1, self.qx1, self.qy1, self.z, dt, NY, NX,
                  self.h, self.qx, self.qy, self.h, self.qx, self.qy)
        self.volume[self.n] = float(self.h.sum())
        self.t = self.t + dt
        self.clock[self.n] = self.t
        self.n += 1


def main():
    lahar = Lahar()
    sync = cp.cuda.get_current_stream().synchronize
    for _ in range(WARMUP):
        lahar.step()
    sync()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            lahar.step()
        sync()
        times.append((time.perf_counter() - start) / BLOCK_STEPS)

    volume = lahar.volume
    gauge = lahar.gauge
    clock = lahar.clock
    arrival = np.flatnonzero(gauge > ALARM)
    first = float(clock[arrival[0]]) if arrival.size else -1.0
    print(json.dumps({"program": NAME, "steps": BLOCKS * BLOCK_STEPS,
                      "us": float(np.median(times)) * 1e6,
                      "result": [float(volume[-1]), float(gauge[-1]), float(clock[-1]), first,
                                 float(cp.linalg.norm(lahar.qy))]}))


if __name__ == "__main__":
    main()
