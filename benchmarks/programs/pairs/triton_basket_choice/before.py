"""Conditional-logit model of which item a shopper picks from the offered shelf.

Every session offers a different number of items. Full-batch gradient ascent on
the log-likelihood; the softmax runs over the items of each session.
"""
import json
import statistics
import time

import torch
import triton
import triton.language as tl

NAME = "triton_basket_choice"
SESSIONS = 512
MIN_ITEMS = 120
MAX_ITEMS = 1000
FEATURES = 48
BLOCK = 1024
RATE = 0.05
WARMUP = 6
BLOCKS = 6
STEPS_PER_BLOCK = 5


@triton.jit(do_not_specialize=["session", "first", "count"])
def session_softmax_kernel(utility, probability, log_norm, session, first, count, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    inside = lane < count
    u = tl.load(utility + first + lane, mask=inside, other=-float("inf"))
    peak = tl.max(u, axis=0)
    e = tl.exp(u - peak)
    total = tl.sum(e, axis=0)
    tl.store(probability + first + lane, e / total, mask=inside)
    tl.store(log_norm + session, peak + tl.log(total))


class Shelf:
    """Ragged sessions, stored one after the other."""

    def __init__(self, device):
        generator = torch.Generator().manual_seed(19)
        counts = torch.randint(MIN_ITEMS, MAX_ITEMS + 1, (SESSIONS,), generator=generator)
        ends = torch.cumsum(counts, dim=0)
        self.counts = counts.tolist()
        self.starts = (ends - counts).tolist()
        self.items = int(ends[-1])
        self.features = torch.randn(self.items, FEATURES, generator=generator).to(device)
        pick = (torch.rand(SESSIONS, generator=generator) * counts).long()
        # shoppers like the first feature: move the pick to the better of two items
        other = (torch.rand(SESSIONS, generator=generator) * counts).long()
        rows = torch.stack([pick, other]) + (ends - counts)
        liking = self.features[:, 0].cpu()[rows]
        self.chosen = rows.gather(0, liking.argmax(dim=0, keepdim=True))[0].to(device)
        self.chosen_sum = self.features[self.chosen].sum(dim=0)


class ConditionalLogit:
    def __init__(self, shelf, device):
        self.shelf = shelf
        self.beta = torch.zeros(FEATURES, device=device)
        self.probability = torch.empty(shelf.items, device=device)
        self.log_norm = torch.empty(SESSIONS, device=device)

    def softmax(self, utility):
        shelf = self.shelf
        for session in range(SESSIONS):
            session_softmax_kernel[(1,)](
                utility, self.probability, self.log_norm,
                session, shelf.starts[session], shelf.counts[session],
                BLOCK=BLOCK, num_warps=4,
            )

    def step(self):
        shelf = self.shelf
        utility = torch.mv(shelf.features, self.beta)
        self.softmax(utility)
        loglik = utility[shelf.chosen].sum() - self.log_norm.sum()
        gradient = shelf.chosen_sum - torch.mv(shelf.features.t(), self.probability)
        self.beta.add_(gradient, alpha=RATE / SESSIONS)
        return loglik


def main():
    device = torch.device("cuda")
    shelf = Shelf(device)
    model = ConditionalLogit(shelf, device)

    loglik = []
    for _ in range(WARMUP):
        loglik.append(model.step())
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            loglik.append(model.step())
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK * 1e6)

    print(json.dumps({
        "program": NAME,
        "steps": len(loglik),
        "us": statistics.median(times),
        "result": [loglik[0].item(), loglik[-1].item(), model.beta[0].item()],
    }))


if __name__ == "__main__":
    main()
