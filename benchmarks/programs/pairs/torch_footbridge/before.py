"""Vibration of a footbridge deck under walking groups: Newmark integration of a plate model in double precision."""
import json
import math
import time

import numpy as np
import torch

NAME = "torch_footbridge"
ALONG = 128
ACROSS = 32
GROUPS = 64
BETA = 0.25
GAMMA = 0.5
DT = 0.005
WARMUP = 10
BLOCK = 10
BLOCKS = 8


def second_difference(count, spacing, device):
    matrix = torch.zeros(count, count, dtype=torch.float64, device=device)
    index = torch.arange(count, device=device)
    matrix[index, index] = 2.0
    matrix[index[1:], index[:-1]] = -1.0
    matrix[index[:-1], index[1:]] = -1.0
    return matrix / spacing**2


def deck_matrices(device):
    along = second_difference(ALONG, 0.5, device)
    across = second_difference(ACROSS, 0.25, device)
    across[0, 0] *= 0.5
    across[-1, -1] *= 0.5
    laplace = torch.kron(along, torch.eye(ACROSS, dtype=torch.float64, device=device))
    laplace = laplace + torch.kron(torch.eye(ALONG, dtype=torch.float64, device=device), across)
    bending = 2.2e4 * laplace @ laplace
    position = torch.arange(ALONG * ACROSS, device=device) // ACROSS
    hangers = torch.where(position % 8 == 0, 3.0e4, 0.0).double()
    stiffness = bending + torch.diag(hangers)
    mass = torch.full((ALONG * ACROSS,), 95.0, dtype=torch.float64, device=device)
    rim = torch.arange(ALONG * ACROSS, device=device) % ACROSS
    mass[(rim == 0) | (rim == ACROSS - 1)] += 40.0
    damping = 1.5e-4 * stiffness + torch.diag(0.08 * mass)
    return stiffness, damping, mass


class WalkingGroups:
    def __init__(self, device):
        generator = torch.Generator().manual_seed(5)
        x = torch.arange(ALONG, dtype=torch.float64)[:, None, None] * 0.5
        y = torch.arange(ACROSS, dtype=torch.float64)[None, :, None] * 0.25
        centre_x = torch.rand(GROUPS, generator=generator, dtype=torch.float64) * 50.0 + 7.0
        centre_y = torch.rand(GROUPS, generator=generator, dtype=torch.float64) * 5.0 + 1.5
        spread = torch.rand(GROUPS, generator=generator, dtype=torch.float64) * 1.5 + 0.8
        print_shape = torch.exp(-((x - centre_x) ** 2 + (y - centre_y) ** 2) / (2 * spread**2))
        self.shape = (700.0 * print_shape).reshape(ALONG * ACROSS, GROUPS).to(device)
        self.pace = (torch.rand(GROUPS, generator=generator, dtype=torch.float64) * 0.6 + 1.6).to(device)
        self.phase = (torch.rand(GROUPS, generator=generator, dtype=torch.float64) * 2 * math.pi).to(device)

    def at(self, moment):
        beat = 1.0 + 0.4 * torch.sin(2 * math.pi * self.pace * moment + self.phase)
        return self.shape * beat


class NewmarkDeck:
    def __init__(self, stiffness, damping, mass, groups):
        self.damping = damping
        self.mass = mass[:, None]
        self.groups = groups
        self.c0 = 1.0 / (BETA * DT**2)
        self.c1 = GAMMA / (BETA * DT)
        self.c2 = 1.0 / (BETA * DT)
        self.c3 = 1.0 / (2 * BETA) - 1.0
        self.c4 = GAMMA / BETA - 1.0
        self.c5 = DT / 2 * (GAMMA / BETA - 2.0)
        self.effective = stiffness + self.c1 * damping + torch.diag(self.c0 * mass)
        shape = (mass.numel(), GROUPS)
        self.place = torch.zeros(shape, dtype=torch.float64, device=mass.device)
        self.speed = torch.zeros_like(self.place)
        self.acceleration = torch.zeros_like(self.place)
        self.peak = torch.zeros(GROUPS, dtype=torch.float64, device=mass.device)

    def step(self, number):
        u, v, a = self.place, self.speed, self.acceleration
        load = self.groups.at(number * DT)
        inertia = self.mass * (self.c0 * u + self.c2 * v + self.c3 * a)
        friction = self.damping @ (self.c1 * u + self.c4 * v + self.c5 * a)
        place = torch.linalg.solve(self.effective, load + inertia + friction)
        acceleration = self.c0 * (place - u) - self.c2 * v - self.c3 * a
        self.speed = v + DT * ((1 - GAMMA) * a + GAMMA * acceleration)
        self.place = place
        self.acceleration = acceleration
        self.peak = torch.maximum(self.peak, acceleration.abs().amax(dim=0))


def main():
    device = torch.device("cuda")
    stiffness, damping, mass = deck_matrices(device)
    deck = NewmarkDeck(stiffness, damping, mass, WalkingGroups(device))
    number = 0
    for _ in range(WARMUP):
        deck.step(number)
        number += 1
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            deck.step(number)
            number += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK * 1e6)
    result = [
        deck.place.norm().item(),
        deck.speed.norm().item(),
        deck.peak.mean().item(),
    ]
    print(json.dumps({"program": NAME, "steps": number, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
