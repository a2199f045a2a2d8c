"""Classification of moving blocks in rockfall scans: a point network over segmented clusters, trained in bfloat16."""
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

NAME = "jax_rockfall"
CLUSTERS = 128
STORED = 6
FEATURES = 6
CLASSES = 10
SCANNER_BUFFER = 4096
WIDTHS = (FEATURES, 256, 512, 512)
RATE = 0.002
MOMENTUM = 0.9
WARMUP = 12
BLOCK = 8
BLOCKS = 10


def scan_clusters(seed):
    """Lists of point clusters as the segmentation hands them over, with their classes."""
    rng = np.random.default_rng(seed)
    sets = []
    for _ in range(STORED):
        clouds, kinds = [], []
        for _ in range(CLUSTERS):
            points = int(rng.integers(520, 700))
            kind = int(rng.integers(CLASSES))
            axes = 0.4 + 0.15 * ((kind + np.arange(3)) % 5)
            cloud = np.empty((points, FEATURES), np.float32)
            cloud[:, :3] = rng.standard_normal((points, 3)) * axes
            cloud[:, 3:] = 0.3 * rng.standard_normal((points, 3)) + 0.1 * kind * np.array([1.0, -0.5, 0.2])
            clouds.append(cloud)
            kinds.append(kind)
        sets.append((clouds, np.array(kinds, np.int32)))
    return sets


def pack(clouds):
    longest = max(len(cloud) for cloud in clouds)
    size = min(SCANNER_BUFFER, -(-longest // 64) * 64)
    points = np.zeros((len(clouds), size, FEATURES), np.float32)
    valid = np.zeros((len(clouds), size), np.float32)
    for row, cloud in enumerate(clouds):
        points[row, : len(cloud)] = cloud
        valid[row, : len(cloud)] = 1.0
    return points, valid


def initial_parameters(key):
    layers = []
    for inputs, outputs in zip(WIDTHS[:-1], WIDTHS[1:]):
        key, part = jax.random.split(key)
        weight = jax.random.normal(part, (inputs, outputs)) * np.sqrt(2.0 / inputs)
        layers.append({"w": weight, "b": jnp.zeros((outputs,))})
    key, part = jax.random.split(key)
    head = jax.random.normal(part, (2 * WIDTHS[-1], CLASSES)) * 0.02
    return {"layers": layers, "head": {"w": head, "b": jnp.zeros((CLASSES,))}}


def logits_of(parameters, points, valid):
    x = points.astype(jnp.bfloat16)
    for layer in parameters["layers"]:
        x = x @ layer["w"].astype(jnp.bfloat16) + layer["b"].astype(jnp.bfloat16)
        x = jax.nn.relu(x)
    mask = valid[:, :, None]
    counts = jnp.sum(valid, axis=1, keepdims=True)
    average = jnp.sum(x.astype(jnp.float32) * mask, axis=1) / counts
    spread = jnp.sqrt(jnp.sum(jnp.square(x.astype(jnp.float32)) * mask, axis=1) / counts + 1e-6)
    pooled = jnp.concatenate([average, spread], axis=1)
    return pooled @ parameters["head"]["w"] + parameters["head"]["b"]


def loss_of(parameters, points, valid, kinds):
    scores = jax.nn.log_softmax(logits_of(parameters, points, valid))
    return -jnp.mean(jnp.take_along_axis(scores, kinds[:, None], axis=1))


@jax.jit
def train_step(parameters, velocity, points, valid, kinds):
    loss, slopes = jax.value_and_grad(loss_of)(parameters, points, valid, kinds)
    velocity = jax.tree_util.tree_map(lambda v, g: MOMENTUM * v + g, velocity, slopes)
    parameters = jax.tree_util.tree_map(lambda p, v: p - RATE * v, parameters, velocity)
    return parameters, velocity, loss


def main():
    batches = []
    for clouds, kinds in scan_clusters(3):
        points, valid = pack(clouds)
        batches.append((jax.device_put(points), jax.device_put(valid), jax.device_put(kinds)))
    parameters = initial_parameters(jax.random.PRNGKey(0))
    velocity = jax.tree_util.tree_map(jnp.zeros_like, parameters)
    losses = []
    step = 0

    def advance():
        nonlocal parameters, velocity, step
        points, valid, kinds = batches[step % STORED]
        parameters, velocity, loss = train_step(parameters, velocity, points, valid, kinds)
        losses.append(loss)
        step += 1

    for _ in range(WARMUP):
        advance()
    jax.block_until_ready(parameters)
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            advance()
        jax.block_until_ready(parameters)
        times.append((time.perf_counter() - start) / BLOCK * 1e6)
    values = np.array([float(loss) for loss in losses])
    result = [float(values[:6].mean()), float(values[6:18].mean()), float(values[-24:].mean())]
    print(json.dumps({"program": NAME, "steps": step, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
