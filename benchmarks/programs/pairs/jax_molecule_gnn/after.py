"""Message-passing network for an extensive property of small molecules, trained with Adam."""

import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.2")

import jax
import jax.numpy as jnp
import numpy as np

MOLECULES = 512
ATOMS = 16
RINGS = 3
ELEMENTS = 10
BONDS = 4
DIM = 128
LAYERS = 4
BATCHES = 6
LR, B1, B2, EPS = 5e-4, 0.9, 0.999, 1e-8
BLOCKS = 10
STEPS_PER_BLOCK = 12


def make_batch(rng):
    """Chains of atoms with a few ring closures, as one disjoint graph."""
    base = np.arange(MOLECULES)[:, None] * ATOMS
    a = np.broadcast_to(np.arange(ATOMS - 1), (MOLECULES, ATOMS - 1))
    first = rng.integers(0, ATOMS, (MOLECULES, RINGS))
    second = (first + rng.integers(3, ATOMS - 3, first.shape)) % ATOMS
    src = (np.concatenate([a, first], axis=1) + base).ravel()
    dst = (np.concatenate([a + 1, second], axis=1) + base).ravel()
    bond = rng.integers(0, BONDS, src.shape)
    atom = rng.integers(0, ELEMENTS, MOLECULES * ATOMS)
    energy = np.linspace(-1.0, 1.0, ELEMENTS)[atom]
    pair = 0.3 * np.cos(atom[src] * 1.7 + bond) * np.cos(atom[dst] * 1.7 + bond)
    np.add.at(energy, src, pair)
    target = energy.reshape(MOLECULES, ATOMS).mean(axis=1)
    batch = {
        "atom": atom.astype(np.int32),
        "src": np.concatenate([src, dst]).astype(np.int32),
        "dst": np.concatenate([dst, src]).astype(np.int32),
        "bond": np.concatenate([bond, bond]).astype(np.int32),
        "target": target.astype(np.float32),
    }
    return jax.tree_util.tree_map(jnp.asarray, batch)


def dense(key, n_in, n_out):
    return {"w": jax.random.normal(key, (n_in, n_out)) * n_in**-0.5, "b": jnp.zeros(n_out)}


def init_params(key):
    keys = iter(jax.random.split(key, 4 + 4 * LAYERS))
    layers = [
        {
            "bond": jax.random.normal(next(keys), (BONDS, DIM)) * 0.1,
            "message": dense(next(keys), 2 * DIM, DIM),
            "update1": dense(next(keys), 2 * DIM, DIM),
            "update2": dense(next(keys), DIM, DIM),
            "scale": jnp.ones(DIM),
            "shift": jnp.zeros(DIM),
        }
        for _ in range(LAYERS)
    ]
    return {
        "atom": jax.random.normal(next(keys), (ELEMENTS, DIM)),
        "layers": layers,
        "out1": dense(next(keys), DIM, DIM),
        "out2": dense(next(keys), DIM, 1),
    }


def apply_dense(p, x):
    return x @ p["w"] + p["b"]


def predict(params, batch):
    h = params["atom"][batch["atom"]]
    for p in params["layers"]:
        pair = jnp.concatenate([h[batch["src"]], h[batch["dst"]]], axis=1)
        m = jax.nn.silu(apply_dense(p["message"], pair) + p["bond"][batch["bond"]])
        m = jax.ops.segment_sum(m, batch["dst"], num_segments=h.shape[0])
        u = jax.nn.silu(apply_dense(p["update1"], jnp.concatenate([h, m], axis=1)))
        h = h + apply_dense(p["update2"], u)
        centred = h - h.mean(axis=1, keepdims=True)
        h = centred * jax.lax.rsqrt(jnp.square(centred).mean(axis=1, keepdims=True) + 1e-5)
        h = h * p["scale"] + p["shift"]
    per_atom = apply_dense(params["out2"], jax.nn.silu(apply_dense(params["out1"], h)))
    return per_atom.reshape(MOLECULES, ATOMS).mean(axis=1)


def loss_fn(params, batch):
    return jnp.square(predict(params, batch) - batch["target"]).mean()


loss_and_grad = jax.value_and_grad(loss_fn)


def adam(params, grads, m, v, count):
    tree_map = jax.tree_util.tree_map
    m = tree_map(lambda a, g: B1 * a + (1 - B1) * g, m, grads)
    v = tree_map(lambda a, g: B2 * a + (1 - B2) * g * g, v, grads)
    fix1 = 1 - B1**count
    fix2 = 1 - B2**count
    params = tree_map(
        lambda p, a, b: p - LR * (a / fix1) / (jnp.sqrt(b / fix2) + EPS), params, m, v
    )
    return params, m, v


@jax.jit
def train_step(params, m, v, count, batch):
    loss, grads = loss_and_grad(params, batch)
    params, m, v = adam(params, grads, m, v, count)
    return params, m, v, loss


def main():
    rng = np.random.default_rng(14)
    batches = [make_batch(rng) for _ in range(BATCHES)]
    params = init_params(jax.random.PRNGKey(3))
    m = jax.tree_util.tree_map(jnp.zeros_like, params)
    v = jax.tree_util.tree_map(jnp.zeros_like, params)
    losses, times, done = [], [], 0
    for block in range(BLOCKS + 1):
        jax.block_until_ready((params, m, v))
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            done += 1
            params, m, v, loss = train_step(params, m, v, float(done), batches[done % BATCHES])
            losses.append(loss)
        jax.block_until_ready((params, m, v))
        if block > 0:
            times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    checksum = float(np.mean([float(x) for x in losses]))
    print(
        json.dumps(
            {
                "program": "jax_molecule_gnn",
                "steps": done,
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
