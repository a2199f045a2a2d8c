"""Images from DataLoader workers, copied from pageable memory, through a small CNN with autocast. A
second argument says how many workers."""

import sys

import steps
import torch


class Images(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64 * 64

    def __getitem__(self, at: int):
        generator = torch.Generator().manual_seed(at)
        return torch.rand(3, 128, 128, generator=generator), at % 10


if __name__ == "__main__":
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 128, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(), torch.nn.Linear(2048, 10),
    ).cuda()  # fmt: skip
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    batches = iter(torch.utils.data.DataLoader(Images(), batch_size=64, num_workers=workers))
    losses = []

    def step(_: int) -> None:
        images, labels = next(batches)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(network(images.cuda()), labels.cuda())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    steps.run(step, torch.cuda.synchronize, 24, result=lambda: losses[-1])
