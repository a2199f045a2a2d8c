"""Single-particle cryo-EM: central slices of a Fourier volume compared with CTF-affected images."""

import json
import math
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

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


def euler_matrices(angles):
    """ZYZ Euler angles in degrees, one row each, to rotation matrices."""
    radians = np.radians(angles)
    (ca, cb, cg), (sa, sb, sg) = np.cos(radians).T, np.sin(radians).T
    out = np.empty((len(radians), 3, 3))
    out[:, 0, 0] = ca * cb * cg - sa * sg
    out[:, 0, 1] = -ca * cb * sg - sa * cg
    out[:, 0, 2] = ca * sb
    out[:, 1, 0] = sa * cb * cg + ca * sg
    out[:, 1, 1] = -sa * cb * sg + ca * cg
    out[:, 1, 2] = sa * sb
    out[:, 2, 0] = -sb * cg
    out[:, 2, 1] = sb * sg
    out[:, 2, 2] = cb
    return out


def compiled(function):
    """The function compiled into fused kernels; as it is, where that fails."""
    fast = torch.compile(function, dynamic=False)

    def call(*args):
        nonlocal fast
        if fast is not function:
            try:
                return fast(*args)
            except Exception as error:
                print(f"{function.__name__} is not compiled: {error}", file=sys.stderr)
                fast = function
        return function(*args)

    return call


def transfer(defocus, s2):
    phase = math.pi * WAVELENGTH * s2 * defocus[:, None, None]
    phase = phase - 0.5 * math.pi * SPHERICAL * WAVELENGTH**3 * s2.square()
    return -math.sqrt(1 - AMPLITUDE**2) * torch.sin(phase) - AMPLITUDE * torch.cos(phase)


@compiled
def sample_points(kx, ky, rotations):
    """The plane z = 0 rotated: (particles, BOX, HALF, 3)."""
    columns = rotations[:, None, None]
    return kx[None, :, :, None] * columns[..., 0] + ky[None, :, :, None] * columns[..., 1]


@compiled
def correlate(model, defocus, images, s2, shell):
    weight = transfer(defocus, s2) * shell
    real, imag = model[0] * weight, model[1] * weight
    image_real, image_imag = images[..., 0], images[..., 1]
    cross = (real * image_real + imag * image_imag).sum(dim=(1, 2))
    power = (real.square() + imag.square()).sum(dim=(1, 2))
    image_power = (image_real.square() + image_imag.square()).sum(dim=(1, 2))
    return cross / (power.sqrt() * image_power.sqrt())


class Matcher:
    def __init__(self, volume):
        transform = torch.fft.fftshift(torch.fft.fftn(torch.fft.ifftshift(volume)))
        # Real and imaginary part side by side in memory: one place to read for both.
        self.volume = torch.view_as_real(transform.contiguous()).permute(3, 0, 1, 2)[None]
        ky = torch.arange(-(BOX // 2), BOX // 2, device=DEVICE) / (BOX // 2)
        kx = torch.arange(HALF, device=DEVICE) / (BOX // 2)
        ky, kx = torch.meshgrid(ky, kx, indexing="ij")
        self.kx, self.ky = kx.contiguous(), ky.contiguous()
        self.s2 = (kx.square() + ky.square()) / (2 * PIXEL) ** 2
        self.shell = (kx.square() + ky.square() <= 0.9).float()

    def ctf(self, defocus):
        return transfer(defocus, self.s2)

    def project(self, rotations):
        """Slices of the volume, one per rotation, as real and imaginary parts."""
        grid = sample_points(self.kx, self.ky, rotations)[None]
        return F.grid_sample(self.volume, grid, align_corners=True)[0]

    def score(self, rotations, defocus, images):
        return correlate(self.project(rotations), defocus, images, self.s2, self.shell)


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
        true = euler_matrices(angles[-1] + rng.normal(0, 2.0, (PARTICLES, 3)))
        clean = matcher.project(torch.from_numpy(true).float().to(DEVICE)) * matcher.ctf(
            defocus[-1]
        )
        noise = torch.randn(PARTICLES, BOX, HALF, 2, device=DEVICE, generator=generator)
        images.append(clean.permute(1, 2, 3, 0) + 20 * noise)

    def step(i):
        stack = i % STACKS
        rotations = torch.from_numpy(euler_matrices(angles[stack]).astype(np.float32))
        # Pinned, so that the host need not wait for the steps before.
        rotations = rotations.pin_memory().to(DEVICE, non_blocking=True)
        return matcher.score(rotations, defocus[stack], images[stack])

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
