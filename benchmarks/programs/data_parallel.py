"""Data-parallel training under torchrun; with one GPU it still calls NCCL."""

import steps
import torch

torch.distributed.init_process_group("nccl")
rank = torch.distributed.get_rank()
torch.cuda.set_device(rank)
network = torch.nn.Sequential(
    torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048)
).cuda()
network = torch.nn.parallel.DistributedDataParallel(network, device_ids=[rank])
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
given = torch.randn(256, 2048, device="cuda")


def step(_: int) -> None:
    optimizer.zero_grad()
    network(given).square().mean().backward()
    total = torch.ones(1, device="cuda")
    torch.distributed.all_reduce(total)
    optimizer.step()


steps.run(step, torch.cuda.synchronize, 25)
torch.distributed.destroy_process_group()
