"""Motion compensation of ultrasound cine loops of the tongue.

Frames of one utterance are aligned to a reference by a smooth displacement
field on a coarse control grid, refined by gradient descent on the difference
of the images plus a bending penalty.  All frames are fitted together.
"""
import json
import time

import torch
import torch.nn.functional as F

FRAMES = 24
HEIGHT, WIDTH = 384, 512
CONTROL = (12, 16)
FEATURES = 6                  # filtered copies of each frame
WARMUP = 6
ITERATIONS = 30
BLOCK = 5


def speckle_sequence(device):
    """A curved bright contour over correlated speckle, drifting with time."""
    gen = torch.Generator(device=device).manual_seed(9)
    y = torch.linspace(-1, 1, HEIGHT, device=device)[:, None]
    x = torch.linspace(-1, 1, WIDTH, device=device)[None, :]
    noise = torch.randn(1, 1, HEIGHT // 4, WIDTH // 4, generator=gen, device=device)
    noise = F.interpolate(noise, size=(HEIGHT, WIDTH), mode="bicubic", align_corners=True)[0, 0]
    frames = []
    for f in range(FRAMES):
        shift = 0.10 * torch.sin(torch.tensor(f / 4.0, device=device))
        ridge = 0.2 * torch.cos(2.2 * x) - 0.1 + shift * (1 - x * x)
        frames.append(torch.exp(-((y - ridge) / 0.05) ** 2) + 0.08 * noise)
    return torch.stack(frames)


def feature_bank(frames):
    """Local mean and gradients at two scales, as in LK-type trackers."""
    maps = []
    for size in (3, 9):
        smooth = F.avg_pool2d(frames[:, None], size, 1, size // 2)
        dy = F.pad(smooth[:, :, 2:] - smooth[:, :, :-2], (0, 0, 1, 1))
        dx = F.pad(smooth[..., 2:] - smooth[..., :-2], (1, 1))
        maps += [smooth, dy, dx]
    return torch.cat(maps, 1).contiguous()


def base_coordinates(device):
    # the outermost samples are blanked by the scanner, stay inside of them
    y = torch.linspace(-0.97, 0.97, HEIGHT, device=device)
    x = torch.linspace(-0.97, 0.97, WIDTH, device=device)
    gy, gx = torch.meshgrid(y, x, indexing="ij")
    return torch.stack([gx, gy], -1)


def hat_basis(samples, knots, device):
    """Linear B-spline weights of the control points, (samples, knots)."""
    t = torch.linspace(0, knots - 1, samples, device=device)[:, None]
    return (1 - (t - torch.arange(knots, device=device)).abs()).clamp(min=0)


def resample(images, coords):
    """Bilinear values of images (N, C, H, W) at coords (N, H, W, 2) in [-1, 1]."""
    return F.grid_sample(images, coords, mode="bilinear", padding_mode="border",
                         align_corners=True)


class Registration:
    def __init__(self, device):
        frames = speckle_sequence(device)
        self.moving = feature_bank(frames)
        self.base = base_coordinates(device)
        self.reference = resample(self.moving[:1], self.base[None])
        self.rows = hat_basis(HEIGHT, CONTROL[0], device)
        self.cols = hat_basis(WIDTH, CONTROL[1], device).t().contiguous()
        self.field = torch.zeros(FRAMES, 2, *CONTROL, device=device, requires_grad=True)
        self.opt = torch.optim.Adam([self.field], lr=2e-3, fused=True)

    def bending(self):
        d2y = self.field[:, :, 2:] - 2 * self.field[:, :, 1:-1] + self.field[:, :, :-2]
        d2x = self.field[..., 2:] - 2 * self.field[..., 1:-1] + self.field[..., :-2]
        return d2y.square().mean() + d2x.square().mean()

    def step(self):
        dense = self.rows @ self.field @ self.cols
        coords = self.base + dense.permute(0, 2, 3, 1)
        warped = resample(self.moving, coords)
        loss = F.mse_loss(warped, self.reference.expand_as(warped)) + 0.5 * self.bending()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()


def main():
    device = torch.device("cuda")
    registration = Registration(device)
    losses = [registration.step() for _ in range(WARMUP)]
    torch.cuda.synchronize()
    blocks = []
    for _ in range(ITERATIONS // BLOCK):
        begin = time.perf_counter()
        for _ in range(BLOCK):
            losses.append(registration.step())
        torch.cuda.synchronize()
        blocks.append((time.perf_counter() - begin) / BLOCK)
    blocks.sort()
    result = [losses[0].item() * 1e3, losses[-1].item() * 1e3,
              registration.field.detach().abs().mean().item()]
    print(json.dumps({"program": "torch_ultrasound_warp", "steps": len(losses),
                      "us": blocks[len(blocks) // 2] * 1e6, "result": result}))


if __name__ == "__main__":
    main()
