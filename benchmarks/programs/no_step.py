"""Work of a new size each time: nothing repeats."""

import random

import steps
import torch

random.seed(0)


def step(_: int) -> None:
    x = torch.randn(random.randrange(64, 2048), random.randrange(64, 2048), device="cuda")
    for _ in range(random.randrange(1, 9)):
        x = x * random.random()
        if random.random() < 0.5:
            x = x @ x.T
        if random.random() < 0.3:
            x = torch.softmax(x, 0)


steps.run(step, torch.cuda.synchronize, 30)
