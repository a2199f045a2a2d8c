"""Two processes on one GPU, each with its own loop."""

import multiprocessing

import steps


def work(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    x = torch.randn(1024, 1024, device="cuda")

    def step(_: int) -> None:
        torch.relu(x @ x).sum()

    steps.run(step, torch.cuda.synchronize, 30)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=work, args=(seed,)) for seed in range(2)]
    for each in started:
        each.start()
    for each in started:
        each.join()
