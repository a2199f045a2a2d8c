"""Hamiltonian Monte Carlo for a hierarchical Poisson model of hospital admissions, in JAX."""

import json
import statistics
import time

import jax
import jax.numpy as jnp

HOSPITALS, WEEKS, COVARIATES = 96, 208, 8
LEAPFROG = 4
STEP_SIZE = 0.0015
WARMUP, DRAWS = 4, 40


def simulate(key):
    k1, k2, k3, k4 = jax.random.split(key, 4)
    x = 0.3 * jax.random.normal(k1, (HOSPITALS, WEEKS, COVARIATES))
    level = 2.0 + 0.4 * jax.random.normal(k2, (HOSPITALS,))
    slope = 0.3 * jax.random.normal(k3, (COVARIATES,))
    counts = jax.random.poisson(k4, jnp.exp(level[:, None] + x @ slope))
    return x, counts.astype(jnp.float32)


def log_posterior(params, x, counts):
    spread = jnp.exp(params["log_spread"])
    level = params["mean"] + spread * params["offset"]
    season = jnp.arange(WEEKS) * (2 * jnp.pi / 52)
    wave = params["sin"] * jnp.sin(season) + params["cos"] * jnp.cos(season)
    log_rate = level[:, None] + x @ params["slope"] + wave[None, :]
    likelihood = jnp.sum(counts * log_rate - jnp.exp(log_rate))
    prior = -0.5 * jnp.sum(params["offset"] ** 2) - 0.5 * jnp.sum(params["slope"] ** 2)
    prior -= 0.5 * (params["mean"] - 2) ** 2 + 0.5 * params["log_spread"] ** 2
    return likelihood + prior - 0.5 * (params["sin"] ** 2 + params["cos"] ** 2)


def nudge(tree, step, direction):
    return jax.tree.map(lambda t, d: t + step * d, tree, direction)


def leapfrog(params, momentum, x, counts):
    slope = jax.grad(log_posterior)
    kick = nudge(momentum, 0.5 * STEP_SIZE, slope(params, x, counts))
    for i in range(LEAPFROG):
        params = nudge(params, STEP_SIZE, kick)
        scale = STEP_SIZE if i < LEAPFROG - 1 else 0.5 * STEP_SIZE
        kick = nudge(kick, scale, slope(params, x, counts))
    return params, kick


def kinetic(momentum):
    return 0.5 * sum(jnp.sum(p**2) for p in jax.tree.leaves(momentum))


def draw(params, key, x, counts):
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves) + 1)
    momentum = [jax.random.normal(k, p.shape) for k, p in zip(keys[1:], leaves)]
    momentum = jax.tree.unflatten(tree, momentum)
    proposal, end = leapfrog(params, momentum, x, counts)
    before = log_posterior(params, x, counts) - kinetic(momentum)
    after = log_posterior(proposal, x, counts) - kinetic(end)
    accept = jnp.log(jax.random.uniform(keys[0])) < after - before
    params = jax.tree.map(lambda new, old: jnp.where(accept, new, old), proposal, params)
    return params, accept


def main():
    key = jax.random.key(4)
    x, counts = simulate(jax.random.key(40))
    params = {
        "mean": jnp.array(2.0),
        "log_spread": jnp.array(-1.0),
        "offset": jnp.zeros(HOSPITALS),
        "slope": jnp.zeros(COVARIATES),
        "sin": jnp.array(0.0),
        "cos": jnp.array(0.0),
    }
    times, accepted = [], 0
    result = []
    for n in range(WARMUP + DRAWS):
        key, sub = jax.random.split(key)
        start = time.perf_counter()
        params, accept = draw(params, sub, x, counts)
        jax.block_until_ready(params)
        times.append(time.perf_counter() - start)
        accepted += int(accept)
        if n in (0, 3):
            result.append(float(log_posterior(params, x, counts)))
    print(f"{accepted} of {WARMUP + DRAWS} accepted, mean {float(params['mean']):.3f}")
    us = statistics.median(times[WARMUP:]) * 1e6
    out = {"program": "jax_hierarchical_hmc", "steps": len(times), "us": us, "result": result}
    print(json.dumps(out))


if __name__ == "__main__":
    main()
