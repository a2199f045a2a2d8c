"""Fails in its eighth step."""

import steps
import torch

x = torch.randn(512, 512, device="cuda")


def step(number: int) -> None:
    if number == 7:
        raise ValueError("this program fails")
    torch.relu(x @ x).sum()


steps.run(step, torch.cuda.synchronize, 20)
