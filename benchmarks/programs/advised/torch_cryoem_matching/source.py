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
ROWS = 16  # rows of a slice handled by one program
CHUNKS = BOX // ROWS


def euler_matrix(rot, tilt, psi):
    """ZYZ Euler angles in degrees to a rotation matrix."""
    rot, tilt, psi = math.radians(rot), math.radians(tilt), math.radians(psi)
    ca, cb, cg = math.cos(rot), math.cos(tilt), math.cos(psi)
    sa, sb, sg = math.sin(rot), math.sin(tilt), math.sin(psi)
    z1 = np.array([[ca, -sa, 0], [sa, ca, 0], [0, 0, 1]])
    y = np.array([[cb, 0, sb], [0, 1, 0], [-sb, 0, cb]])
    z2 = np.array([[cg, -sg, 0], [sg, cg, 0], [0, 0, 1]])
    return z1 @ y @ z2


@triton.jit
def corner(volume_ptr, index, mask, weight):
    """One complex corner of the interpolation, read as a single 8-byte word."""
    word = tl.load(volume_ptr + index, mask=mask, other=0)
    real = word.to(tl.int32).to(tl.float32, bitcast=True)
    imag = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return real * weight, imag * weight


@triton.jit
def match_kernel(
    volume_ptr, angles_ptr, defocus_ptr, images_ptr, partial_ptr,
    stride_p, stride_y, stride_x, stride_c,
    inv_pixel2, linear, quadratic, shift, limit,
    BOX: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    particle = tl.program_id(1)
    chunk = tl.program_id(0)
    radians = 0.017453292519943295
    rot = tl.load(angles_ptr + particle * 3).to(tl.float32) * radians
    tilt = tl.load(angles_ptr + particle * 3 + 1).to(tl.float32) * radians
    psi = tl.load(angles_ptr + particle * 3 + 2).to(tl.float32) * radians
    ca = tl.cos(rot)
    sa = tl.sin(rot)
    cb = tl.cos(tilt)
    sb = tl.sin(tilt)
    cg = tl.cos(psi)
    sg = tl.sin(psi)
    r00 = ca * cb * cg - sa * sg
    r01 = -ca * cb * sg - sa * cg
    r10 = sa * cb * cg + ca * sg
    r11 = ca * cg - sa * cb * sg
    r20 = -sb * cg
    r21 = sb * sg
    defocus = tl.load(defocus_ptr + particle)
    base = images_ptr + particle.to(tl.int64) * stride_p

    # 32 neighbouring lanes cover 8 x 4 points; a tile is 32 columns by 16 rows.
    o = tl.arange(0, 32 * ROWS)
    col = ((o >> 5) & 3) * 8 + (o & 7)
    row = chunk * ROWS + (o >> 7) * 4 + ((o >> 3) & 3)
    iy = row - BOX // 2
    cross = tl.zeros((32 * ROWS,), dtype=tl.float32)
    power = tl.zeros((32 * ROWS,), dtype=tl.float32)
    energy = tl.zeros((32 * ROWS,), dtype=tl.float32)
    for tile in range(0, BOX // 2, 32):
        ix = tile + col
        image = base + row * stride_y + ix * stride_x
        a = tl.load(image, eviction_policy="evict_first")
        b = tl.load(image + stride_c, eviction_policy="evict_first")
        energy += a * a + b * b
        kx = ix.to(tl.float32) / (BOX // 2)
        ky = iy.to(tl.float32) / (BOX // 2)
        k2 = kx * kx + ky * ky
        # Inside the shell every corner lies within the volume.
        inside = k2 <= limit
        px = (r00 * kx + r01 * ky + 1.0) * (0.5 * (BOX - 1))
        py = (r10 * kx + r11 * ky + 1.0) * (0.5 * (BOX - 1))
        pz = (r20 * kx + r21 * ky + 1.0) * (0.5 * (BOX - 1))
        jx = px.to(tl.int32)
        jy = py.to(tl.int32)
        jz = pz.to(tl.int32)
        fx = px - jx.to(tl.float32)
        fy = py - jy.to(tl.float32)
        fz = pz - jz.to(tl.float32)
        gx = 1.0 - fx
        gy = 1.0 - fy
        gz = 1.0 - fz
        at = (jz * BOX + jy) * BOX + jx
        re0, im0 = corner(volume_ptr, at, inside, gz * gy * gx)
        re1, im1 = corner(volume_ptr, at + 1, inside, gz * gy * fx)
        re2, im2 = corner(volume_ptr, at + BOX, inside, gz * fy * gx)
        re3, im3 = corner(volume_ptr, at + BOX + 1, inside, gz * fy * fx)
        re4, im4 = corner(volume_ptr, at + BOX * BOX, inside, fz * gy * gx)
        re5, im5 = corner(volume_ptr, at + BOX * BOX + 1, inside, fz * gy * fx)
        re6, im6 = corner(volume_ptr, at + BOX * BOX + BOX, inside, fz * fy * gx)
        re7, im7 = corner(volume_ptr, at + BOX * BOX + BOX + 1, inside, fz * fy * fx)
        s2 = k2 * inv_pixel2
        ctf = -tl.sin(linear * s2 * defocus - quadratic * s2 * s2 + shift)
        re = (((re0 + re1) + (re2 + re3)) + ((re4 + re5) + (re6 + re7))) * ctf
        im = (((im0 + im1) + (im2 + im3)) + ((im4 + im5) + (im6 + im7))) * ctf
        cross += tl.where(inside, re * a + im * b, 0.0)
        power += tl.where(inside, re * re + im * im, 0.0)

    # The last column, kx = 1, is outside the shell: it counts for the image norm only.
    last = base + (chunk * ROWS + tl.arange(0, ROWS)) * stride_y + (BOX // 2) * stride_x
    a = tl.load(last)
    b = tl.load(last + stride_c)
    out = partial_ptr + (particle * CHUNKS + chunk) * 3
    tl.store(out, tl.sum(cross, axis=0))
    tl.store(out + 1, tl.sum(power, axis=0))
    tl.store(out + 2, tl.sum(energy, axis=0) + tl.sum(a * a + b * b, axis=0))


@triton.jit
def score_kernel(partial_ptr, score_ptr, n, CHUNKS: tl.constexpr, PAD: tl.constexpr, P: tl.constexpr):
    p = tl.program_id(0) * P + tl.arange(0, P)
    c = tl.arange(0, PAD)
    mask = (p[:, None] < n) & (c[None, :] < CHUNKS)
    at = partial_ptr + (p[:, None] * CHUNKS + c[None, :]) * 3
    cross = tl.sum(tl.load(at, mask=mask, other=0.0), axis=1)
    power = tl.sum(tl.load(at + 1, mask=mask, other=0.0), axis=1)
    energy = tl.sum(tl.load(at + 2, mask=mask, other=0.0), axis=1)
    tl.store(score_ptr + p, cross / (tl.sqrt(power) * tl.sqrt(energy)), mask=p < n)


class Matcher:
    def __init__(self, volume):
        transform = torch.fft.fftshift(torch.fft.fftn(torch.fft.ifftshift(volume)))
        self.volume = torch.view_as_real(transform).permute(3, 0, 1, 2).contiguous()[None]
        # The same volume with real and imaginary part side by side, one 8-byte word a voxel.
        self.words = torch.view_as_real(transform).contiguous().view(torch.int64)
        self.partial = torch.empty(PARTICLES, CHUNKS, 3, device=DEVICE)
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
        """Correlation of each image with its slice; angles are Euler angles in degrees."""
        count = len(angles)
        scores = torch.empty(count, device=DEVICE)
        match_kernel[(CHUNKS, count)](
            self.words,
            angles,
            defocus,
            images,
            self.partial,
            *images.stride(),
            1 / (2 * PIXEL) ** 2,
            math.pi * WAVELENGTH,
            0.5 * math.pi * SPHERICAL * WAVELENGTH**3,
            math.asin(AMPLITUDE),  # sqrt(1 - A^2) sin p + A cos p = sin(p + asin A)
            0.9,
            BOX=BOX,
            ROWS=ROWS,
            CHUNKS=CHUNKS,
            num_warps=4,
        )
        score_kernel[(triton.cdiv(count, 16),)](
            self.partial, scores, count, CHUNKS=CHUNKS, PAD=triton.next_power_of_2(CHUNKS), P=16, num_warps=4
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

    host_angles = [torch.from_numpy(a).pin_memory() for a in angles]

    def step(i):
        stack = i % STACKS
        current = host_angles[stack].to(DEVICE, non_blocking=True)
        return matcher.score(current, defocus[stack], images[stack])

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
