"""A network's inference as one CUDA graph."""

import steps
import torch

network = torch.nn.Sequential(
    *(torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()) for _ in range(12))
)
network = network.cuda().half()
given = torch.randn(64, 1024, device="cuda", dtype=torch.half)
with torch.no_grad():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        network(given)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        network(given)

steps.run(lambda _: graph.replay(), torch.cuda.synchronize, 40)
