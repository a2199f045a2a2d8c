"""Grades tomatoes on a sorting line: camera frames to Lab colour, distance to the ripe colour, patch network for defects."""
import json
import time

import numpy as np
import torch
from torch import nn

NAME = "torch_tomato_sorting"
SEED = 77
DEVICE = torch.device("cuda")

CAMERAS = 16
SIDE = 1024
PATCH = 16
WIDTH = 1024
DEPTH = 7
GRADES = 6
FRAME_SETS = 4
WARMUP = 15
BLOCKS = 10
PER_BLOCK = 20

RGB_TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.9505, 1.0, 1.089)
RIPE = (42.0, 48.0, 34.0)


def companding(t):
    return torch.where(t > 0.008856, t.clamp(min=1e-6) ** (1.0 / 3.0), 7.787 * t + 16.0 / 116.0)


def lab_and_ripeness(frames):
    """CIE Lab of sRGB frames (scaled to about one) and the colour distance of every pixel to a ripe fruit."""
    linear = torch.where(frames > 0.04045, ((frames + 0.055) / 1.055) ** 2.4, frames / 12.92)
    red, green, blue = linear.unbind(dim=1)
    fx, fy, fz = (companding((m[0] * red + m[1] * green + m[2] * blue) / w) for m, w in zip(RGB_TO_XYZ, WHITE))
    light = 116.0 * fy - 16.0
    a = 500.0 * (fx - fy)
    b = 200.0 * (fy - fz)
    distance = torch.sqrt((light - RIPE[0]) ** 2 + (a - RIPE[1]) ** 2 + (b - RIPE[2]) ** 2)
    lab = torch.stack([light / 100.0, a / 128.0, b / 128.0], dim=1).to(torch.bfloat16)
    return lab, distance.mean(dim=(1, 2))


class DefectNet(nn.Module):
    """Residual network over the patches of a frame."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.grade = nn.Linear(WIDTH, GRADES)

    def forward(self, lab):
        side = SIDE // PATCH
        patches = lab.view(-1, 3, side, PATCH, side, PATCH).permute(0, 2, 4, 1, 3, 5)
        h = torch.relu_(self.embed(patches.reshape(-1, side * side, 3 * PATCH * PATCH)))
        for block in self.blocks:
            h = torch.relu_(block(h))
        return self.grade(h.mean(dim=1))


class SortingLine:
    def __init__(self):
        self.net = DefectNet().to(DEVICE, dtype=torch.bfloat16).eval()
        self.colour = torch.compile(lab_and_ripeness)
        self.threshold = torch.tensor(60.0, device=DEVICE)

    @torch.inference_mode()
    def grade(self, frames):
        lab, distance = self.colour(frames)
        scores = self.net(lab).float()
        scores[:, 0] -= 0.02 * torch.relu(distance - self.threshold)
        return scores, distance


def make_frames():
    generator = torch.Generator(device=DEVICE).manual_seed(SEED)
    base = torch.tensor([0.75, 0.25, 0.2], device=DEVICE).view(1, 3, 1, 1)
    sets = []
    for _ in range(FRAME_SETS):
        noise = torch.rand(CAMERAS, 3, SIDE, SIDE, device=DEVICE, generator=generator)
        sets.append((base * (0.4 + 0.8 * noise)).clamp(0.0, 1.0))
    return sets


def main():
    torch.manual_seed(SEED)
    sets = make_frames()
    line = SortingLine()
    step = 0
    for _ in range(WARMUP):
        line.grade(sets[step % FRAME_SETS])
        step += 1
    torch.cuda.synchronize()

    times, graded = [], []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            graded.append(line.grade(sets[step % FRAME_SETS]))
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK)

    scores = torch.stack([s for s, _ in graded])
    distances = torch.stack([d for _, d in graded])
    result = [float(distances.mean()), float(scores.abs().mean())]
    print(json.dumps({"program": NAME, "steps": BLOCKS * PER_BLOCK, "us": float(np.median(times)) * 1e6,
                      "result": result}))


if __name__ == "__main__":
    main()
