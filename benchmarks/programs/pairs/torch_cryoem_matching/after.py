"""Single-particle cryo-EM: central slices of a Fourier volume compared with CTF-affected images."""

import json
import math
import statistics
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


def euler_matrix(rot, tilt, psi):
    """ZYZ Euler angles in degrees to a rotation matrix."""
    rot, tilt, psi = math.radians(rot), math.radians(tilt), math.radians(psi)
    ca, cb, cg = math.cos(rot), math.cos(tilt), math.cos(psi)
    sa, sb, sg = math.sin(rot), math.sin(tilt), math.sin(psi)
    z1 = np.array([[ca, -sa, 0], [sa, ca, 0], [0, 0, 1]])
    y = np.array([[cb, 0, sb], [0, 1, 0], [-sb, 0, cb]])
    z2 = np.array([[cg, -sg, 0], [sg, cg, 0], [0, 0, 1]])
    return z1 @ y @ z2


def euler_matrices(angles):
    """The same for a whole tensor of angles, on its device."""
    ca, cb, cg = torch.cos(torch.deg2rad(angles)).unbind(-1)
    sa, sb, sg = torch.sin(torch.deg2rad(angles)).unbind(-1)
    rows = [
        ca * cb * cg - sa * sg, -ca * cb * sg - sa * cg, ca * sb,
        sa * cb * cg + ca * sg, -sa * cb * sg + ca * cg, sa * sb,
        -sb * cg, sb * sg, cb,
    ]  # fmt: skip
    return torch.stack(rows, dim=-1).view(-1, 3, 3)


class Matcher:
    def __init__(self, volume):
        transform = torch.fft.fftshift(torch.fft.fftn(torch.fft.ifftshift(volume)))
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

    def score(self, rotations, defocus, images):
        model = self.project(rotations) * (self.ctf(defocus) * self.shell)
        cross = (model[0] * images[..., 0] + model[1] * images[..., 1]).sum(dim=(1, 2))
        norm = model.square().sum(dim=(0, 2, 3)).sqrt() * images.square().sum(dim=(1, 2, 3)).sqrt()
        return cross / norm


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

    angles = [torch.from_numpy(a.astype(np.float32)).to(DEVICE) for a in angles]

    def step(i):
        stack = i % STACKS
        rotations = euler_matrices(angles[stack])
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
