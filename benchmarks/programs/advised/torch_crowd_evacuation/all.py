"""Evacuation of a stadium concourse: pedestrians steer to the nearest exit and slow down where it is crowded."""
import json
import statistics
import time

import torch

NAME = "torch_crowd_evacuation"
PEOPLE = 1_200_000
HALL = 1024.0         # metres, square site
CELLS = 512           # density grid, cells a side
DT = 0.1
SUBSTEPS = 20
WARMUP, BLOCKS, PER_BLOCK = 6, 6, 8
EAGER = 3             # of the warm-up, before the step is captured
EXITS = [(0.0, 256.0), (1024.0, 512.0), (600.0, 0.0), (400.0, 1024.0)]


def place_people(device):
    gen = torch.Generator(device="cpu").manual_seed(41)
    pos = torch.rand(2, PEOPLE, generator=gen) * (HALL - 2.0) + 1.0
    vel = torch.randn(2, PEOPLE, generator=gen) * 0.3
    pace = 1.2 + 0.25 * torch.randn(PEOPLE, generator=gen)
    target = torch.randint(0, len(EXITS), (PEOPLE,), generator=gen)
    return pos.to(device), vel.to(device), pace.clamp_(0.4, 2.2).to(device), target.to(device)


class Concourse:
    def __init__(self, device):
        self.device = device
        self.pos, self.vel, self.pace, target = place_people(device)
        doors = torch.tensor(EXITS, device=device)
        self.door = doors[target].T.contiguous()
        self.cell_area = (HALL / CELLS) ** 2
        self.to_cell = CELLS / HALL
        self.one = torch.ones(PEOPLE, device=device)
        # on the GPU, so that a captured step counts on
        self.tick = torch.zeros((), dtype=torch.float64, device=device)

    def density(self):
        ij = (self.pos * self.to_cell).long().clamp_(0, CELLS - 1)
        cell = ij[0] * CELLS + ij[1]
        heads = torch.zeros(CELLS * CELLS, device=self.device)
        heads.index_add_(0, cell, self.one)
        return heads[cell] / self.cell_area

    def desired_velocity(self, crowd):
        # Weidmann's fundamental diagram, with the walking pace of each person
        slow = 1.0 - torch.exp(-1.913 * (1.0 / (crowd + 1e-3) - 1.0 / 5.4))
        speed = self.pace * slow.clamp(min=0.05)
        to_door = self.door - self.pos
        return to_door * (speed * torch.rsqrt((to_door * to_door).sum(0) + 1e-2))

    def limit_speed(self, t):
        # people hurry a little more as the alarm goes on
        top = (2.5 + 0.5 * torch.tanh(t / 60.0)).float()
        speed = torch.linalg.vector_norm(self.vel, dim=0)
        self.vel *= torch.minimum(top / speed.clamp(min=1e-3), torch.ones_like(speed))

    def walls(self):
        for axis in range(2):
            p, v = self.pos[axis], self.vel[axis]
            outside = (p < 0.0) | (p > HALL)
            v.copy_(torch.where(outside, -0.5 * v, v))
            p.clamp_(0.0, HALL)

    def substep(self, t):
        crowd = self.density()
        wish = self.desired_velocity(crowd)
        self.vel += (wish - self.vel) * (DT / 0.5)
        self.limit_speed(t)
        self.pos += self.vel * DT
        self.walls()
        return crowd

    def step(self):
        """Two simulated seconds; returns the mean crowding that people met."""
        met = 0.0
        for _ in range(SUBSTEPS):
            met = met + self.substep(self.tick * DT).mean()
            self.tick += 1
        return met / SUBSTEPS


@torch.no_grad()
def main():
    device = torch.device("cuda")
    hall = Concourse(device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(EAGER):
            hall.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        met = hall.step()
    for _ in range(EAGER, WARMUP):
        graph.replay()
    torch.cuda.synchronize()

    spans, crowding = [], []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            graph.replay()
            crowding.append(met.clone())
        torch.cuda.synchronize()
        spans.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    assert torch.isfinite(hall.pos).all(), "a pedestrian left the plane"
    left = (hall.door - hall.pos).norm(dim=0).mean().item()
    speed = hall.vel.norm(dim=0).mean().item()
    print(json.dumps({"program": NAME, "steps": WARMUP + BLOCKS * PER_BLOCK, "us": statistics.median(spans),
                      "result": [torch.stack(crowding).mean().item(), left, speed]}))


if __name__ == "__main__":
    main()
