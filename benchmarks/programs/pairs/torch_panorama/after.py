"""Gradient-domain blending of panorama strips.

Each frame pair is merged by solving a Poisson equation on the seam region with
conjugate gradients, entirely on the GPU.  The guidance field comes from the
overlapping exposures; pixels outside of the mask keep the reference exposure.
"""
import json
import time

import torch

H, W = 1536, 2048
CG_ITERS = 40
WARMUP, BLOCKS, PER_BLOCK = 5, 10, 3


def make_exposure(gen, device, gain):
    """Smooth random scene with a little sensor noise."""
    coarse = torch.rand(1, 1, 24, 32, generator=gen, device=device)
    scene = torch.nn.functional.interpolate(coarse, size=(H, W), mode="bicubic", align_corners=False)
    noise = 0.01 * torch.randn(H, W, generator=gen, device=device)
    return gain * scene[0, 0] + noise


def seam_mask(device):
    yy = torch.linspace(-1, 1, H, device=device)[:, None]
    xx = torch.linspace(-1, 1, W, device=device)[None, :]
    blob = (xx / 0.9) ** 2 + (yy / 0.85) ** 2 < 1.0
    return blob.float()


class SeamOperator:
    """Five-point Laplacian restricted to the blending mask."""

    def __init__(self, mask):
        self.mask = mask

    def __call__(self, x, out):
        torch.mul(x, 4.0, out=out)
        out[1:].sub_(x[:-1])
        out[:-1].sub_(x[1:])
        out[:, 1:].sub_(x[:, :-1])
        out[:, :-1].sub_(x[:, 1:])
        out.mul_(self.mask)
        return out


class PoissonBlender:
    def __init__(self, mask):
        self.mask = mask
        self.op = SeamOperator(mask)
        self.Ap = torch.empty_like(mask)

    def rhs(self, reference, target):
        """Divergence of the guidance field minus what the boundary gives."""
        guide = torch.empty_like(target)
        self.op(target, guide)
        boundary = reference * (1.0 - self.mask)
        fixed = torch.empty_like(target)
        self.op(boundary, fixed)
        return guide - fixed

    def solve(self, b, x0):
        x = x0 * self.mask
        r = b - self.op(x, self.Ap)
        p = r.clone()
        rs = torch.dot(r.view(-1), r.view(-1))
        history = [rs]
        for it in range(CG_ITERS):
            Ap = self.op(p, self.Ap)
            pAp = torch.dot(p.view(-1), Ap.view(-1))
            alpha = rs / pAp
            x.addcmul_(p, alpha)
            r.addcmul_(Ap, alpha, value=-1.0)
            rs_new = torch.dot(r.view(-1), r.view(-1))
            history.append(rs_new)
            beta = rs_new / rs
            p = torch.addcmul(r, p, beta)
            rs = rs_new
        # one read for the whole solve
        history = torch.stack(history).tolist()
        return x, history

    def blend(self, reference, target):
        b = self.rhs(reference, target)
        x, history = self.solve(b, target)
        merged = reference * (1.0 - self.mask) + x
        return merged, history


def main():
    device = torch.device("cuda")
    gen = torch.Generator(device=device).manual_seed(1851)
    mask = seam_mask(device)
    blender = PoissonBlender(mask)
    reference = make_exposure(gen, device, 1.0)
    targets = [make_exposure(gen, device, g) for g in (0.7, 0.85, 1.15)]

    done = 0
    for _ in range(WARMUP):
        merged, history = blender.blend(reference, targets[done % len(targets)])
        done += 1
    torch.cuda.synchronize()

    laps = []
    for _ in range(BLOCKS):
        t0 = time.perf_counter()
        for _ in range(PER_BLOCK):
            merged, history = blender.blend(reference, targets[done % len(targets)])
            done += 1
        torch.cuda.synchronize()
        laps.append((time.perf_counter() - t0) / PER_BLOCK)

    laps.sort()
    us = laps[len(laps) // 2] * 1e6
    drop = float(history[-1]) / float(history[0])
    print(f"{len(history) - 1} iterations, residual ratio {drop:.3e}")
    print(json.dumps({
        "program": "torch_panorama", "steps": done, "us": us,
        "result": [merged.mean().item(), merged.std().item(), drop ** 0.5],
    }))


if __name__ == "__main__":
    main()
