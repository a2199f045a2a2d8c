"""One token after another through a small network: the host launches, the GPU waits."""

import steps
import torch

torch.manual_seed(0)
layers = torch.nn.ModuleList(
    torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(6)
)
layers = layers.cuda().half().eval()
head = torch.nn.Linear(512, 8192).cuda().half()
state = torch.randn(1, 32, 512, device="cuda", dtype=torch.half)


@torch.no_grad()
def step(_: int) -> None:
    global state
    x = state
    for layer in layers:
        x = layer(x)
    token = head(x[:, -1]).argmax().item()
    state = torch.roll(state, -1, 1)
    state[0, -1, token % 512] += 1


steps.run(step, torch.cuda.synchronize, 60, result=lambda: state.float().norm())
