"""Dynamics of mooring lines under moving fairleads.

Sixty-four lines of a floating wind farm are chains of lumped masses joined by
tension-only springs.  The anchor is fixed and the fairlead follows the motion
of the floater.  A frame of 0.2 s is integrated with a semi-implicit Euler
scheme; the tension at the fairlead is recorded after every frame.
"""
import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

LINES = 64
NODES = 256
SEGMENT = 1.0            # rest length, m
STIFFNESS = 5.0e5        # N per m of extension
DAMPING = 400.0          # axial, N s/m
MASS = 50.0              # with added mass, kg
WEIGHT = 100.0           # submerged, N
DRAG = 60.0              # N s2/m2
SEABED = 2.0e3           # N/m
DT = 2.0e-3
SUBSTEPS = 100
WARMUP = 12
BLOCK = 8
BLOCKS = 10


def make_farm(seed):
    """Geometry and sea state of each line."""
    rng = np.random.default_rng(seed)
    return {
        "span": jnp.asarray(rng.uniform(226.0, 232.0, LINES), jnp.float32),
        "depth": jnp.asarray(rng.uniform(122.0, 128.0, LINES), jnp.float32),
        "surge": jnp.asarray(rng.uniform(0.5, 2.5, LINES), jnp.float32),
        "heave": jnp.asarray(rng.uniform(0.3, 1.5, LINES), jnp.float32),
        "rate": jnp.asarray(2.0 * np.pi / rng.uniform(8.0, 14.0, LINES), jnp.float32),
        "current": jnp.asarray(rng.uniform(0.1, 0.9, LINES), jnp.float32),
    }


def initial_state(farm):
    """Straight lines at rest."""
    share = jnp.linspace(0.0, 1.0, NODES, dtype=jnp.float32)[None, :, None]
    fairlead = jnp.stack([farm["span"], farm["depth"]], axis=-1)[:, None, :]
    position = share * fairlead
    return position, jnp.zeros_like(position), jnp.zeros((), jnp.float32)


def fairlead_motion(farm, clock):
    phase = farm["rate"] * clock
    ramp = jnp.minimum(clock / 4.0, 1.0)
    x = farm["span"] + ramp * farm["surge"] * jnp.sin(phase)
    z = farm["depth"] + ramp * farm["heave"] * jnp.sin(phase + 0.7)
    return jnp.stack([x, z], axis=-1)


def segment_forces(position, velocity):
    delta = position[:, 1:] - position[:, :-1]
    length = jnp.sqrt(jnp.sum(delta * delta, axis=-1, keepdims=True))
    along = delta / length
    closing = jnp.sum((velocity[:, 1:] - velocity[:, :-1]) * along, axis=-1, keepdims=True)
    tension = STIFFNESS * jnp.maximum(length - SEGMENT, 0.0) + DAMPING * closing
    return tension * along


@jax.jit
def node_forces(farm, position, velocity):
    pull = segment_forces(position, velocity)
    force = jnp.pad(pull, ((0, 0), (0, 1), (0, 0))) - jnp.pad(pull, ((0, 0), (1, 0), (0, 0)))
    water = jnp.stack([
        farm["current"][:, None] * jnp.clip(position[..., 1] / 125.0, 0.0, 1.0),
        jnp.zeros_like(position[..., 1]),
    ], axis=-1)
    relative = velocity - water
    speed = jnp.sqrt(jnp.sum(relative * relative, axis=-1, keepdims=True) + 1e-6)
    force = force - DRAG * speed * relative
    lift = SEABED * jnp.maximum(-position[..., 1], 0.0) - WEIGHT
    return force.at[..., 1].add(lift)


@jax.jit
def advance(farm, position, velocity, force, clock):
    clock = clock + DT
    velocity = velocity + (DT / MASS) * force
    velocity = velocity.at[:, 0].set(0.0)
    moved = position + DT * velocity
    fairlead = fairlead_motion(farm, clock)
    velocity = velocity.at[:, -1].set((fairlead - position[:, -1]) / DT)
    return moved.at[:, -1].set(fairlead), velocity, clock


def substep(farm, state):
    position, velocity, clock = state
    force = node_forces(farm, position, velocity)
    return advance(farm, position, velocity, force, clock)


def run_frame(farm, state):
    for _ in range(SUBSTEPS):
        state = substep(farm, state)
    return state


@jax.jit
def fairlead_tension(position):
    delta = position[:, -1] - position[:, -2]
    length = jnp.sqrt(jnp.sum(delta * delta, axis=-1))
    return STIFFNESS * jnp.maximum(length - SEGMENT, 0.0)


def main():
    farm = make_farm(64)
    state = initial_state(farm)
    record = []
    for _ in range(WARMUP):
        state = run_frame(farm, state)
        record.append(fairlead_tension(state[0]))
    jax.block_until_ready(state)

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            state = run_frame(farm, state)
            record.append(fairlead_tension(state[0]))
        jax.block_until_ready((state, record[-1]))
        times.append((time.perf_counter() - start) / BLOCK * 1e6)

    tension = np.stack([np.asarray(t) for t in record])
    position = np.asarray(state[0], dtype=np.float64)
    print(json.dumps({
        "program": "jax_mooring",
        "steps": len(record),
        "us": statistics.median(times),
        "result": [
            float(tension.mean()),
            float(tension.max(axis=0).mean()),
            float(position[..., 0].mean()),
            float(position[..., 1].mean()),
        ],
    }))


if __name__ == "__main__":
    main()
