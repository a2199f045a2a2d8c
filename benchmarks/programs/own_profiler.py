"""Records itself with PyTorch's profiler for a while, which uses CUPTI too."""

import steps
import torch

x = torch.randn(1024, 1024, device="cuda")
wanted = torch.profiler.schedule(wait=5, warmup=1, active=3, repeat=1)
activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]

with torch.profiler.profile(activities=activities, schedule=wanted) as own:

    def step(_: int) -> None:
        torch.relu(x @ x).sum()
        own.step()

    steps.run(step, torch.cuda.synchronize, 30)
