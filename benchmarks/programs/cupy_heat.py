"""Heat on a plate in CuPy: a raw kernel, elementwise work, and a read-back in each step."""

import cupy
import steps

SIZE = 2048
spread = cupy.RawKernel(
    """extern "C" __global__ void spread(const float *from, float *to, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
  int at = y * n + x;
  to[at] = 0.25f * (from[at - 1] + from[at + 1] + from[at - n] + from[at + n]);
}""",
    "spread",
)
plate, other = cupy.zeros((SIZE, SIZE), cupy.float32), cupy.zeros((SIZE, SIZE), cupy.float32)
plate[0] = other[0] = 100


def step(_: int) -> None:
    global plate, other
    for _ in range(10):
        spread((SIZE // 16, SIZE // 16), (16, 16), (plate, other, cupy.int32(SIZE)))
        plate, other = other, plate
    float(cupy.abs(plate - other).max())


steps.run(step, cupy.cuda.Device().synchronize, 60, result=lambda: plate.sum())
