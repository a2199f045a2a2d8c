"""Social affinity of the tagged bees of an apiary.

Every hive has the same number of tagged bees; each bee has a feature vector
of the last ten minutes (trophallaxis, place on the comb, activity).  For each
hive we want the affinity matrix between its bees, how concentrated each bee's
contacts are, and the hive's mixing index, while features drift with time.
"""
import json
import math
import statistics
import time

import torch

NAME = "torch_beehive_affinity"
DEVICE = "cuda"
HIVES = 120
BEES = 192
FEATURES = 64
WARMUP = 6
BLOCKS = 8
PER_BLOCK = 4


def make_bees():
    generator = torch.Generator(device=DEVICE).manual_seed(2020)
    castes = torch.randn(HIVES, 5, FEATURES, generator=generator, device=DEVICE)
    member = torch.randint(0, 5, (HIVES, BEES), generator=generator, device=DEVICE)
    bees = torch.gather(castes, 1, member[..., None].expand(-1, -1, FEATURES))
    bees = bees + 0.5 * torch.randn(HIVES, BEES, FEATURES, generator=generator, device=DEVICE)
    sharpness = 0.5 + torch.rand(HIVES, generator=generator, device=DEVICE)
    return bees, sharpness


def contact_entropy(affinity):
    """Entropy of each row of a contact distribution, in nats."""
    return torch.special.entr(affinity).sum(dim=-1)


def affinity_of(bees, sharpness):
    """Contact distribution of each bee, without itself."""
    score = bees @ bees.transpose(-1, -2)
    score = score * (sharpness / math.sqrt(FEATURES))
    score.diagonal(dim1=-2, dim2=-1).fill_(-1e9)
    return torch.softmax(score, dim=-1)


def survey(bees, sharpness):
    """Mean entropy, mixing index and neighbour-averaged features of the hives."""
    entropies, mixing, neighbours = [], [], []
    for hive in range(HIVES):
        affinity = affinity_of(bees[hive], sharpness[hive])
        entropies.append(contact_entropy(affinity).mean())
        pull = affinity @ bees[hive]
        neighbours.append(pull)
        mixing.append((pull - bees[hive]).square().mean())
    return torch.stack(entropies), torch.stack(mixing), torch.stack(neighbours)


def advance(bees, neighbours):
    """Bees become a little more like those they meet."""
    return torch.lerp(bees, neighbours, 0.01)


def step(bees, sharpness):
    entropy, mixing, neighbours = survey(bees, sharpness)
    return advance(bees, neighbours), entropy, mixing


@torch.inference_mode()
def main():
    torch.set_float32_matmul_precision("high")
    bees, sharpness = make_bees()
    steps = 0
    for _ in range(WARMUP):
        bees, entropy, mixing = step(bees, sharpness)
        steps += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(PER_BLOCK):
            bees, entropy, mixing = step(bees, sharpness)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / PER_BLOCK)
        steps += PER_BLOCK

    print(json.dumps({"program": NAME, "steps": steps,
                      "us": statistics.median(times) * 1e6,
                      "result": [entropy.mean().item(), mixing.mean().item(),
                                 bees.abs().mean().item()]}))


if __name__ == "__main__":
    main()
