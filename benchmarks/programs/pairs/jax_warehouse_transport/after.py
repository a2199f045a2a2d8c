"""Plans deliveries from warehouses to stores with annealed entropic transport.

Each round updates the prices of warehouses and stores once at the present
smoothing, reports the cost of the plan they imply, and lowers the smoothing.
"""
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

NAME = "jax_warehouse_transport"
WAREHOUSES = 2048
STORES = 6144
FIRST_SMOOTHING = 0.5
COOLING = 0.96
WARMUP = 5
BLOCKS = 5
STEPS_PER_BLOCK = 4


def log_sum_exp(x, axis):
    peak = jnp.max(x, axis=axis, keepdims=True)
    return jnp.squeeze(peak, axis) + jnp.log(jnp.sum(jnp.exp(x - peak), axis=axis))


@jax.jit
def sinkhorn_round(cost, log_supply, log_demand, store_price, *, smoothing):
    """One log-domain update of both prices; returns the store prices and the planned cost."""
    warehouse_price = smoothing * (
        log_supply - log_sum_exp((store_price[None, :] - cost) / smoothing, axis=1)
    )
    store_price = smoothing * (
        log_demand - log_sum_exp((warehouse_price[:, None] - cost) / smoothing, axis=0)
    )
    plan = jnp.exp((warehouse_price[:, None] + store_price[None, :] - cost) / smoothing)
    return store_price, jnp.sum(plan * cost)


def smoothing_schedule(rounds):
    return [FIRST_SMOOTHING * COOLING ** k for k in range(rounds)]


def synthetic_region(rng):
    """Warehouses near a few hubs, stores spread over the region."""
    hubs = rng.uniform(0.0, 1.0, size=(12, 2))
    warehouses = hubs[rng.integers(12, size=WAREHOUSES)] + 0.05 * rng.normal(size=(WAREHOUSES, 2))
    stores = rng.uniform(0.0, 1.0, size=(STORES, 2))
    east = (warehouses[:, None, 0] - stores[None, :, 0]).astype(np.float32)
    north = (warehouses[:, None, 1] - stores[None, :, 1]).astype(np.float32)
    supply = rng.uniform(0.5, 1.5, size=WAREHOUSES)
    demand = rng.uniform(0.2, 1.8, size=STORES)
    return (
        jnp.asarray(np.hypot(east, north)),
        jnp.asarray(np.log(supply / supply.sum()), dtype=jnp.float32),
        jnp.asarray(np.log(demand / demand.sum()), dtype=jnp.float32),
    )


class Planner:
    def __init__(self, cost, log_supply, log_demand, schedule):
        self.problem = (cost, log_supply, log_demand)
        self.schedule = schedule
        self.store_price = jnp.zeros_like(log_demand)
        self.costs = []

    def round(self):
        smoothing = self.schedule[len(self.costs)]
        self.store_price, planned = sinkhorn_round(
            *self.problem, self.store_price, smoothing=smoothing
        )
        self.costs.append(planned)

    def wait(self):
        self.store_price.block_until_ready()


def main():
    rng = np.random.default_rng(7)
    cost, log_supply, log_demand = synthetic_region(rng)
    total_steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    planner = Planner(cost, log_supply, log_demand, smoothing_schedule(total_steps))

    for _ in range(WARMUP):
        planner.round()
    planner.wait()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            planner.round()
        planner.wait()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK * 1e6)

    costs = np.array([float(c) for c in planner.costs])
    print(json.dumps({
        "program": NAME,
        "steps": len(costs),
        "us": statistics.median(times),
        "result": [float(costs[0]), float(costs[-1]), float(planner.store_price.std())],
    }))


if __name__ == "__main__":
    main()
