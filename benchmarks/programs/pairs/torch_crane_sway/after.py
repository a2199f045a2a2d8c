"""Closed-loop anti-sway control of a quay crane: state filter and sampled predictive control on the GPU, plant on the host."""
import json
import math
import time

import numpy as np
import torch

NAME = "torch_crane_sway"
SEED = 2207
DEVICE = torch.device("cuda")

STATE = 8            # trolley, hoist, two sway angles, with rates
INPUTS = 2           # trolley and hoist acceleration
SENSORS = 20         # encoders, gyros, camera marks, load cells
ROLLOUTS = 32768
HORIZON = 16
HIDDEN = 512
DT = 0.05
ROPE = 12.0
TEMPERATURE = 8.0


class CranePlant:
    """Host-side simulator that stands for the real machine."""

    def __init__(self, seed, sensor_matrix):
        self.rng = np.random.default_rng(seed)
        self.x = np.zeros(STATE)
        self.x[4] = 0.15
        self.c = sensor_matrix

    def advance(self, u):
        x = self.x
        ax, ah = float(u[0]), float(u[1])
        rope = max(4.0, ROPE + x[2])
        sway_acc = -(9.81 / rope) * math.sin(x[4]) - ax / rope * math.cos(x[4]) - 0.05 * x[5]
        skew_acc = -0.8 * x[6] - 0.05 * x[7]
        rates = np.array([x[1], ax - 0.1 * x[1], x[3], ah - 0.2 * x[3], x[5], sway_acc, x[7], skew_acc])
        self.x = x + DT * rates
        return (self.c @ self.x + 0.01 * self.rng.standard_normal(SENSORS)).astype(np.float32)


class DynamicsNet(torch.nn.Module):
    """Learned correction to the linear model over one control interval."""

    def __init__(self):
        super().__init__()
        self.inp = torch.nn.Linear(STATE + INPUTS, HIDDEN)
        self.mid = torch.nn.Linear(HIDDEN, HIDDEN)
        self.out = torch.nn.Linear(HIDDEN, STATE)

    def forward(self, z):
        h = torch.relu_(self.inp(z))
        h = torch.relu_(self.mid(h))
        return self.out(h)


class Controller:
    def __init__(self, sensor_matrix, seed):
        g = torch.Generator().manual_seed(seed)
        self.c = torch.from_numpy(sensor_matrix).float().to(DEVICE)
        rate = torch.zeros(STATE, STATE)
        for i in (0, 2, 4, 6):
            rate[i, i + 1] = 1.0
        rate[1, 1], rate[3, 3] = -0.1, -0.2
        rate[5, 4], rate[5, 5] = -9.81 / ROPE, -0.05
        rate[7, 6], rate[7, 7] = -0.8, -0.05
        self.a = (torch.eye(STATE) + DT * rate).to(DEVICE)
        self.q = (1e-4 * torch.eye(STATE)).to(DEVICE)
        self.r = 1e-3
        self.x = torch.zeros(STATE, 1, device=DEVICE)
        self.p = torch.eye(STATE, device=DEVICE)
        self.b = torch.zeros(STATE, INPUTS, device=DEVICE)
        self.b[1, 0] = DT
        self.b[3, 1] = DT
        self.b[5, 0] = -DT / ROPE
        self.net = DynamicsNet().to(DEVICE, dtype=torch.bfloat16).eval()
        noise = 0.6 * torch.randn(HORIZON, ROLLOUTS, INPUTS, generator=g)
        self.noise = noise.to(DEVICE)
        self.plan = torch.zeros(HORIZON, INPUTS, device=DEVICE)
        self.weights = torch.tensor([0.5, 0.1, 0.5, 0.1, 40.0, 10.0, 20.0, 5.0], device=DEVICE)
        self.measured = torch.zeros(SENSORS, device=DEVICE)

    def filter_state(self):
        """Kalman prediction, then the sensors one after another."""
        self.x.copy_(self.a @ self.x + self.b @ self.plan[0].unsqueeze(1))
        p = self.a @ self.p @ self.a.T + self.q
        x = self.x
        for j in range(SENSORS):
            row = self.c[j:j + 1]
            ph = p @ row.T
            s = torch.addmm(self.measured[j].view(1, 1), row, x, beta=1.0, alpha=-1.0)
            gain = ph / (row @ ph + self.r)
            x = torch.addmm(x, gain, s)
            p = torch.addmm(p, gain, ph.T, alpha=-1.0)
        self.x.copy_(x)
        self.p.copy_(0.5 * (p + p.T))

    def optimise_plan(self):
        """Rollouts through the learned dynamics, weighted by their cost."""
        controls = self.plan.unsqueeze(1) + self.noise
        drive = controls @ self.b.T
        state = self.x.view(1, STATE).expand(ROLLOUTS, STATE)
        cost = torch.zeros(ROLLOUTS, device=DEVICE)
        for t in range(HORIZON):
            z = torch.cat([state, controls[t]], dim=1).to(torch.bfloat16)
            nominal = torch.addmm(drive[t], state, self.a.T)
            state = torch.add(nominal, self.net(z), alpha=0.1 * DT)
            cost = cost + (state * state) @ self.weights
        share = torch.softmax(-cost / TEMPERATURE, dim=0)
        update = torch.einsum("k,tku->tu", share, self.noise)
        plan = (self.plan + update).clamp(-2.0, 2.0)
        self.plan.copy_(torch.cat([plan[1:], plan[-1:]]))
        return plan[0], cost.mean()

    @torch.no_grad()
    def cycle(self):
        self.filter_state()
        command, cost = self.optimise_plan()
        return torch.cat([command, cost.view(1)])


def recorded_cycle(controller):
    """The control cycle as one graph over the controller's own buffers."""
    buffers = (controller.x, controller.p, controller.plan)
    initial = [b.clone() for b in buffers]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            controller.cycle()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = controller.cycle()
    for b, value in zip(buffers, initial):
        b.copy_(value)

    def replay():
        graph.replay()
        return output

    return replay


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    sensor_matrix = rng.standard_normal((SENSORS, STATE)) / math.sqrt(STATE)
    plant = CranePlant(SEED + 1, sensor_matrix)
    controller = Controller(sensor_matrix, SEED + 2)
    cycle = recorded_cycle(controller)
    to_device = torch.zeros(SENSORS, pin_memory=True)
    to_host = torch.zeros(INPUTS + 1, pin_memory=True)
    y = plant.advance(np.zeros(INPUTS))

    def control_step(y):
        to_device.copy_(torch.from_numpy(y))
        controller.measured.copy_(to_device, non_blocking=True)
        to_host.copy_(cycle(), non_blocking=True)
        torch.cuda.current_stream().synchronize()
        command = to_host.numpy()
        return plant.advance(np.clip(command[:INPUTS], -2.0, 2.0)), float(command[INPUTS])

    costs = []
    for _ in range(20):
        y, cost = control_step(y)

    times, per_block = [], 10
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(per_block):
            y, cost = control_step(y)
            costs.append(cost)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / per_block)

    result = [float(np.mean(costs)), float(np.trace(controller.p.cpu().numpy()))]
    print(json.dumps({"program": NAME, "steps": 10 * per_block, "us": float(np.median(times)) * 1e6,
                      "result": result}))


if __name__ == "__main__":
    main()
