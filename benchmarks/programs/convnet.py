"""A small residual network for images, trained in FP32, with the channels first and Adam one tensor at
a time."""

import steps
import torch

WIDTH, DEPTH, BATCH, SIZE = 128, 6, 64, 56


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.second = torch.nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(WIDTH) for _ in range(2))

    def forward(self, x):
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(x + self.norms[1](self.second(y)))


torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Conv2d(3, WIDTH, 3, padding=1), *(Block() for _ in range(DEPTH)),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(WIDTH, 10),
).cuda()  # fmt: skip
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, foreach=False)
images = torch.randn(BATCH, 3, SIZE, SIZE, device="cuda")
labels = torch.arange(BATCH, device="cuda") % 10
losses = []


def step(_: int) -> None:
    loss = torch.nn.functional.cross_entropy(network(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())


steps.run(step, torch.cuda.synchronize, 20, result=lambda: losses[2])
