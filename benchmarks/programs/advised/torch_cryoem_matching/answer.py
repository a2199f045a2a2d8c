"""Single-particle cryo-EM: central slices of a Fourier volume compared with CTF-affected images."""

import json
import math
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

DEVICE = "cuda"
BOX = 192
HALF = BOX // 2 + 1
PARTICLES = 256
STACKS = 4
PIXEL = 1.3  # Angstrom
WAVELENGTH = 0.0197
SPHERICAL = 2.7e7
AMPLITUDE = 0.1
WARMUP = 6
BLOCKS = 8
STEPS_PER_BLOCK = 40
BLOCK = 512
CHUNKS = 8  # programs per particle, a power of two
ROWS = 32  # particles per program of the last kernel
SHELL = int(0.9 * (BOX // 2) ** 2)  # largest squared radius, in pixels, inside the shell


@triton.jit
def corner(volume, at, inside):
    """Real and imaginary part of a voxel, loaded as one 64-bit word."""
    word = tl.load(volume + at, mask=inside, other=0)
    real = word.to(tl.int32).to(tl.float32, bitcast=True)
    imag = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return real, imag


@triton.jit
def score_parts(
    volume,
    angles,
    defocus,
    images,
    parts,
    stride_p,
    stride_y,
    stride_x,
    stride_c,
    COUNT: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    LIMIT: tl.constexpr,
    S2: tl.constexpr,
    LINEAR: tl.constexpr,
    QUADRATIC: tl.constexpr,
    SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNKS: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """Rotation, slice, CTF and the three sums of the score, for a part of one particle."""
    chunk = tl.program_id(0)
    particle = tl.program_id(1)
    alpha = (tl.load(angles + 3 * particle) * 0.017453292519943295).to(tl.float32)
    beta = (tl.load(angles + 3 * particle + 1) * 0.017453292519943295).to(tl.float32)
    gamma = (tl.load(angles + 3 * particle + 2) * 0.017453292519943295).to(tl.float32)
    ca = tl.cos(alpha)
    sa = tl.sin(alpha)
    cb = tl.cos(beta)
    sb = tl.sin(beta)
    cg = tl.cos(gamma)
    sg = tl.sin(gamma)
    scale: tl.constexpr = (SIZE - 1.0) / SIZE
    middle: tl.constexpr = (SIZE - 1.0) / 2.0
    xx = (ca * cb * cg - sa * sg) * scale
    xy = (-ca * cb * sg - sa * cg) * scale
    yx = (sa * cb * cg + ca * sg) * scale
    yy = (ca * cg - sa * cb * sg) * scale
    zx = -sb * cg * scale
    zy = sb * sg * scale
    focus = tl.load(defocus + particle) * LINEAR

    cross = tl.zeros([BLOCK], dtype=tl.float32)
    power = tl.zeros([BLOCK], dtype=tl.float32)
    image2 = tl.zeros([BLOCK], dtype=tl.float32)
    for t in range(ROUNDS):
        index = (chunk + t * CHUNKS) * BLOCK + tl.arange(0, BLOCK)
        valid = index < SIZE * WIDTH
        row = index // WIDTH
        col = index - row * WIDTH
        ky = row - SIZE // 2
        radius2 = col * col + ky * ky
        inside = valid & (radius2 <= LIMIT)

        at = images + particle * stride_p + row * stride_y + col * stride_x
        re = tl.load(at, mask=valid, other=0.0)
        im = tl.load(at + stride_c, mask=valid, other=0.0)

        fx = col.to(tl.float32)
        fy = ky.to(tl.float32)
        x = xx * fx + xy * fy + middle
        y = yx * fx + yy * fy + middle
        z = zx * fx + zy * fy + middle
        # Inside the shell, all eight corners are inside the volume, and positive.
        x0 = x.to(tl.int32)
        y0 = y.to(tl.int32)
        z0 = z.to(tl.int32)
        wx = x - x0.to(tl.float32)
        wy = y - y0.to(tl.float32)
        wz = z - z0.to(tl.float32)
        base = (z0 * SIZE + y0) * SIZE + x0
        r000, i000 = corner(volume, base, inside)
        r001, i001 = corner(volume, base + 1, inside)
        r010, i010 = corner(volume, base + SIZE, inside)
        r011, i011 = corner(volume, base + (SIZE + 1), inside)
        r100, i100 = corner(volume, base + SIZE * SIZE, inside)
        r101, i101 = corner(volume, base + (SIZE * SIZE + 1), inside)
        r110, i110 = corner(volume, base + (SIZE * SIZE + SIZE), inside)
        r111, i111 = corner(volume, base + (SIZE * SIZE + SIZE + 1), inside)
        r00 = r000 + wx * (r001 - r000)
        r01 = r010 + wx * (r011 - r010)
        r10 = r100 + wx * (r101 - r100)
        r11 = r110 + wx * (r111 - r110)
        i00 = i000 + wx * (i001 - i000)
        i01 = i010 + wx * (i011 - i010)
        i10 = i100 + wx * (i101 - i100)
        i11 = i110 + wx * (i111 - i110)
        r0 = r00 + wy * (r01 - r00)
        r1 = r10 + wy * (r11 - r10)
        i0 = i00 + wy * (i01 - i00)
        i1 = i10 + wy * (i11 - i10)
        real = r0 + wz * (r1 - r0)
        imag = i0 + wz * (i1 - i0)

        s2 = radius2.to(tl.float32) * S2
        phase = s2 * focus - QUADRATIC * s2 * s2
        ctf = -tl.sin(phase + SHIFT)
        real = tl.where(inside, real * ctf, 0.0)
        imag = tl.where(inside, imag * ctf, 0.0)
        cross += real * re + imag * im
        power += real * real + imag * imag
        image2 += re * re + im * im

    out = parts + particle * CHUNKS + chunk
    tl.store(out, tl.sum(cross, axis=0))
    tl.store(out + COUNT * CHUNKS, tl.sum(power, axis=0))
    tl.store(out + 2 * COUNT * CHUNKS, tl.sum(image2, axis=0))


@triton.jit
def finish(parts, scores, COUNT: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = parts + rows[:, None] * CHUNKS + tl.arange(0, CHUNKS)[None, :]
    cross = tl.sum(tl.load(at), axis=1)
    power = tl.sum(tl.load(at + COUNT * CHUNKS), axis=1)
    image2 = tl.sum(tl.load(at + 2 * COUNT * CHUNKS), axis=1)
    tl.store(scores + rows, cross / (tl.sqrt(power) * tl.sqrt(image2)))


def euler_matrix(rot, tilt, psi):
    """ZYZ Euler angles in degrees to a rotation matrix."""
    rot, tilt, psi = math.radians(rot), math.radians(tilt), math.radians(psi)
    ca, cb, cg = math.cos(rot), math.cos(tilt), math.cos(psi)
    sa, sb, sg = math.sin(rot), math.sin(tilt), math.sin(psi)
    z1 = np.array([[ca, -sa, 0], [sa, ca, 0], [0, 0, 1]])
    y = np.array([[cb, 0, sb], [0, 1, 0], [-sb, 0, cb]])
    z2 = np.array([[cg, -sg, 0], [sg, cg, 0], [0, 0, 1]])
    return z1 @ y @ z2


class Matcher:
    def __init__(self, volume):
        transform = torch.fft.fftshift(torch.fft.fftn(torch.fft.ifftshift(volume)))
        # Real and imaginary part of each voxel side by side, as one 64-bit word.
        self.packed = torch.view_as_real(transform).contiguous().view(torch.int64)
        self.angles = torch.empty(PARTICLES, 3, dtype=torch.float64, device=DEVICE)
        self.parts = torch.empty(3, PARTICLES, CHUNKS, device=DEVICE)
        self.volume = torch.view_as_real(transform).permute(3, 0, 1, 2).contiguous()[None]
        ky = torch.arange(-(BOX // 2), BOX // 2, device=DEVICE) / (BOX // 2)
        kx = torch.arange(HALF, device=DEVICE) / (BOX // 2)
        ky, kx = torch.meshgrid(ky, kx, indexing="ij")
        self.plane = torch.stack([kx, ky, torch.zeros_like(kx)], dim=-1).reshape(-1, 3)
        self.s2 = (kx.square() + ky.square()) / (2 * PIXEL) ** 2
        self.shell = (kx.square() + ky.square() <= 0.9).float()

    def ctf(self, defocus):
        phase = math.pi * WAVELENGTH * self.s2 * defocus[:, None, None]
        phase = phase - 0.5 * math.pi * SPHERICAL * WAVELENGTH**3 * self.s2.square()
        return -math.sqrt(1 - AMPLITUDE**2) * torch.sin(phase) - AMPLITUDE * torch.cos(phase)

    def project(self, rotations):
        """Slices of the volume, one per rotation, as real and imaginary parts."""
        grid = (self.plane @ rotations.transpose(1, 2)).view(1, len(rotations), BOX, HALF, 3)
        return F.grid_sample(self.volume, grid, align_corners=True)[0]

    def score(self, angles, defocus, images):
        self.angles.copy_(angles, non_blocking=True)
        scores = torch.empty(PARTICLES, device=DEVICE)
        score_parts[(CHUNKS, PARTICLES)](
            self.packed,
            self.angles,
            defocus,
            images,
            self.parts,
            images.stride(0),
            images.stride(1),
            images.stride(2),
            images.stride(3),
            COUNT=PARTICLES,
            SIZE=BOX,
            WIDTH=HALF,
            LIMIT=SHELL,
            S2=1.0 / ((BOX // 2) * 2 * PIXEL) ** 2,
            LINEAR=math.pi * WAVELENGTH,
            QUADRATIC=0.5 * math.pi * SPHERICAL * WAVELENGTH**3,
            SHIFT=math.asin(AMPLITUDE),
            BLOCK=BLOCK,
            CHUNKS=CHUNKS,
            ROUNDS=triton.cdiv(BOX * HALF, BLOCK * CHUNKS),
            num_warps=4,
        )
        finish[(PARTICLES // ROWS,)](
            self.parts, scores, COUNT=PARTICLES, CHUNKS=CHUNKS, ROWS=ROWS, num_warps=1
        )
        return scores


@torch.no_grad()
def main():
    rng = np.random.default_rng(11)
    axis = torch.arange(BOX, device=DEVICE) - BOX // 2
    z, y, x = torch.meshgrid(axis, axis, axis, indexing="ij")
    volume = torch.zeros(BOX, BOX, BOX, device=DEVICE)
    for cx, cy, cz, width in zip(*rng.uniform(-25, 25, (3, 30)), rng.uniform(3, 9, 30)):
        volume += torch.exp(-((x - cx) ** 2 + (y - cy) ** 2 + (z - cz) ** 2) / (2 * width**2))
    matcher = Matcher(volume)

    angles, defocus, images = [], [], []
    generator = torch.Generator(device=DEVICE).manual_seed(3)
    for _ in range(STACKS):
        angles.append(rng.uniform([0, 0, 0], [360, 180, 360], (PARTICLES, 3)))
        defocus.append(torch.from_numpy(rng.uniform(8e3, 2.5e4, PARTICLES)).float().to(DEVICE))
        true = np.stack([euler_matrix(*a) for a in angles[-1] + rng.normal(0, 2.0, (PARTICLES, 3))])
        clean = matcher.project(torch.from_numpy(true).float().to(DEVICE)) * matcher.ctf(
            defocus[-1]
        )
        noise = torch.randn(PARTICLES, BOX, HALF, 2, device=DEVICE, generator=generator)
        images.append(clean.permute(1, 2, 3, 0) + 20 * noise)

    angles = [torch.from_numpy(a).pin_memory() for a in angles]

    def step(i):
        stack = i % STACKS
        return matcher.score(angles[stack], defocus[stack], images[stack])

    for i in range(WARMUP):
        step(i)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for i in range(STEPS_PER_BLOCK):
            score = step(i)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(
            f"mean correlation {score.mean().item():.4f}, {PARTICLES / times[-1]:.0f} particles/s"
        )
    scores = torch.cat([step(i) for i in range(STACKS)])
    out = {
        "program": "torch_cryoem_matching",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [scores.mean().item(), scores.max().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
