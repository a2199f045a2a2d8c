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


PIXELS = BOX * HALF
SPLITS = 8  # programs of one particle
BLOCK = 512
# pixels within the shell: (ix / (BOX / 2))^2 + (iy / (BOX / 2))^2 <= 0.9, in whole numbers
SHELL = int(0.9 * (BOX // 2) ** 2)


@triton.jit
def match_kernel(
    volume_ptr,
    image_ptr,
    angle_ptr,
    defocus_ptr,
    part_ptr,
    s2_scale,
    phase1,
    phase2,
    shift,
    SHELL: tl.constexpr,
    BOX: tl.constexpr,
    HALF: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    split = tl.program_id(0)
    particle = tl.program_id(1)
    image_ptr += particle * (BOX * HALF)
    rot = (tl.load(angle_ptr + 3 * particle) * 0.017453292519943295).to(tl.float32)
    tilt = (tl.load(angle_ptr + 3 * particle + 1) * 0.017453292519943295).to(tl.float32)
    psi = (tl.load(angle_ptr + 3 * particle + 2) * 0.017453292519943295).to(tl.float32)
    ca = tl.cos(rot)
    sa = tl.sin(rot)
    cb = tl.cos(tilt)
    sb = tl.sin(tilt)
    cg = tl.cos(psi)
    sg = tl.sin(psi)
    # the first two columns of the rotation
    xx = ca * cb * cg - sa * sg
    xy = -ca * cb * sg - sa * cg
    yx = sa * cb * cg + ca * sg
    yy = -sa * cb * sg + ca * cg
    zx = -sb * cg
    zy = sb * sg
    defocus = tl.load(defocus_ptr + particle)

    cross = tl.zeros((BLOCK,), dtype=tl.float32)
    power = tl.zeros((BLOCK,), dtype=tl.float32)
    image_power = tl.zeros((BLOCK,), dtype=tl.float32)
    for block in range(split, (BOX * HALF + BLOCK - 1) // BLOCK, SPLITS):
        p = block * BLOCK + tl.arange(0, BLOCK)
        valid = p < BOX * HALF
        pixel = tl.load(image_ptr + p, mask=valid, other=0)
        image_re = pixel.to(tl.int32).to(tl.float32, bitcast=True)
        image_im = (pixel >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        image_power += image_re * image_re + image_im * image_im

        iy = p // HALF - BOX // 2
        ix = p % HALF
        square = ix * ix + iy * iy
        inside = valid & (square <= SHELL)
        kx = ix.to(tl.float32) * (1.0 / (BOX // 2))
        ky = iy.to(tl.float32) * (1.0 / (BOX // 2))
        half = 0.5 * (BOX - 1)
        gx = (xx * kx + xy * ky + 1.0) * half
        gy = (yx * kx + yy * ky + 1.0) * half
        gz = (zx * kx + zy * ky + 1.0) * half
        x0 = tl.floor(gx)
        y0 = tl.floor(gy)
        z0 = tl.floor(gz)
        fx = gx - x0
        fy = gy - y0
        fz = gz - z0
        at = (z0.to(tl.int32) * BOX + y0.to(tl.int32)) * BOX + x0.to(tl.int32)
        re = tl.zeros((BLOCK,), dtype=tl.float32)
        im = tl.zeros((BLOCK,), dtype=tl.float32)
        for corner in tl.static_range(4):
            # two neighbours along x: real, imaginary, real, imaginary
            v = tl.load(volume_ptr + at + (corner // 2 * BOX + corner % 2) * BOX, mask=inside, other=0)
            re0 = v.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
            im0 = (v >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
            re1 = (v >> 32).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
            im1 = (v >> 48).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
            wz = fz if corner // 2 == 1 else 1.0 - fz
            wy = fy if corner % 2 == 1 else 1.0 - fy
            weight = wz * wy
            re += weight * (re0 + fx * (re1 - re0))
            im += weight * (im0 + fx * (im1 - im0))
        s2 = square.to(tl.float32) * s2_scale
        # -sqrt(1 - a^2) sin(phase) - a cos(phase)
        ctf = -tl.sin(phase1 * s2 * defocus - phase2 * s2 * s2 + shift)
        ctf = tl.where(inside, ctf, 0.0)
        re *= ctf
        im *= ctf
        cross += re * image_re + im * image_im
        power += re * re + im * im
    part_ptr += (particle * SPLITS + split) * 3
    tl.store(part_ptr, tl.sum(cross, axis=0))
    tl.store(part_ptr + 1, tl.sum(power, axis=0))
    tl.store(part_ptr + 2, tl.sum(image_power, axis=0))


@triton.jit
def score_kernel(part_ptr, score_ptr, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    particle = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = (particle * SPLITS)[:, None] * 3 + 3 * tl.arange(0, SPLITS)[None, :]
    cross = tl.sum(tl.load(part_ptr + at), axis=1)
    power = tl.sum(tl.load(part_ptr + at + 1), axis=1)
    image_power = tl.sum(tl.load(part_ptr + at + 2), axis=1)
    tl.store(score_ptr + particle, cross / (tl.sqrt(power) * tl.sqrt(image_power)))


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
        self.volume = torch.view_as_real(transform).permute(3, 0, 1, 2).contiguous()[None]
        # For score: neighbours along x together, in half precision. A score does not depend
        # on the scale of the volume, which is chosen to suit the range of half precision.
        scaled = self.volume[0] * (16384.0 / self.volume.abs().amax())
        re, im = scaled[0], scaled[1]
        pairs = torch.stack([re, im, re.roll(-1, 2), im.roll(-1, 2)], dim=-1).half()
        self.pairs = pairs.contiguous().view(torch.int64)
        self.parts = torch.empty(PARTICLES, SPLITS, 3, device=DEVICE)
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
        scores = torch.empty(PARTICLES, device=DEVICE)
        match_kernel[(SPLITS, PARTICLES)](
            self.pairs,
            images,
            angles,
            defocus,
            self.parts,
            1.0 / (BOX // 2 * 2 * PIXEL) ** 2,
            math.pi * WAVELENGTH,
            0.5 * math.pi * SPHERICAL * WAVELENGTH**3,
            math.asin(AMPLITUDE),
            SHELL=SHELL,
            BOX=BOX,
            HALF=HALF,
            SPLITS=SPLITS,
            BLOCK=BLOCK,
            num_warps=4,
        )
        score_kernel[(PARTICLES // 32,)](self.parts, scores, SPLITS=SPLITS, BLOCK=32, num_warps=1)
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

    # the particles' angles lie on the device, as their defocus and images do
    angles = [torch.from_numpy(a).to(DEVICE) for a in angles]
    images = [i.contiguous().view(torch.int64) for i in images]

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
