"""Semi-supervised polyp segmentation: a student and averaged teachers (mean teacher)."""

import copy
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
DECAYS = (0.99, 0.996, 0.999)
BATCH, SIZE = 8, 96
STAGES, PER_STAGE = 4, 6
WARMUP, BLOCKS, PER_BLOCK = 6, 6, 6
EAGER = 3  # of the warm-up, before the step is captured


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width // 2, 1, bias=False),
            nn.BatchNorm2d(width // 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False),
            nn.BatchNorm2d(width // 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(width // 2, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return F.relu(x + self.body(x))


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        for stage in range(STAGES):
            width = 64 << min(stage, 2)
            if stage:
                layers.append(
                    nn.Conv2d(64 << min(stage - 1, 2), width, 3, 2 if stage < 3 else 1, 1)
                )
            layers += [Residual(width) for _ in range(PER_STAGE)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(256, 1, 1)

    def forward(self, x):
        return self.head(self.body(x))


class Teacher:
    """Exponential moving average of everything in the student's state."""

    def __init__(self, student, decay):
        self.decay = decay
        self.model = copy.deepcopy(student).eval().requires_grad_(False)
        pairs = list(zip(self.model.state_dict().values(), student.state_dict().values()))
        self.mine, self.theirs = zip(*(p for p in pairs if p[0].dtype.is_floating_point))
        self.counts = tuple(zip(*(p for p in pairs if not p[0].dtype.is_floating_point)))

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.mine, self.theirs, 1 - self.decay)
        torch._foreach_copy_(*self.counts)


def main():
    torch.manual_seed(33)
    torch.backends.cudnn.allow_tf32 = True
    student = Segmenter().to(DEVICE, memory_format=torch.channels_last)
    teachers = [Teacher(student, d) for d in DECAYS]
    opt = torch.optim.AdamW(student.parameters(), lr=2e-4, fused=True, capturable=True)
    frames = torch.randn(4, BATCH, 3, SIZE, SIZE).to(DEVICE)
    masks = (torch.rand(4, BATCH, 1, SIZE // 8, SIZE // 8) > 0.7).float().to(DEVICE)
    seen = 0

    x = torch.empty_like(frames[0], memory_format=torch.channels_last)
    mask = torch.empty_like(masks[0])

    def load():
        nonlocal seen
        x.copy_(frames[seen % 4])
        mask.copy_(masks[seen % 4])
        seen += 1

    def work():
        with torch.no_grad():
            soft = torch.sigmoid(teachers[1].model(x))
        out = student(x)
        supervised = F.binary_cross_entropy_with_logits(out, mask)
        loss = supervised + 0.5 * F.mse_loss(torch.sigmoid(out), soft)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        for teacher in teachers:
            teacher.update()
        return loss.detach()

    first = []
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(EAGER):
            load()
            first.append(work())
    torch.cuda.current_stream().wait_stream(side)
    opt.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        loss = work()

    def step():
        load()
        graph.replay()
        return loss.clone()

    first += [step() for _ in range(EAGER, WARMUP)]
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        t0 = time.perf_counter()
        for _ in range(PER_BLOCK):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - t0) / PER_BLOCK)
    result = [float(first[0]), float(first[2]), float(first[5])]
    us = statistics.median(times) * 1e6
    print("losses", result)
    print(json.dumps({"program": "torch_mean_teacher", "steps": seen, "us": us, "result": result}))


if __name__ == "__main__":
    main()
