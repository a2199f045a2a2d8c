// The Mandelbrot set on 4096 x 4096 pixels, at most 1024 steps.
// tolerance: 1e-4
#include "field.cuh"

const int SIZE = 4096, STEPS = 1024;

__device__ int steps_of(int x, int y) {
    float cx = -2.0f + 3.0f * x / SIZE, cy = -1.5f + 3.0f * y / SIZE, zx = 0.0f, zy = 0.0f;
    int k = 0;
    for (; k < STEPS && zx * zx + zy * zy < 4.0f; ++k) {
        float t = zx * zx - zy * zy + cx;
        zy = 2.0f * zx * zy + cy;
        zx = t;
    }
    return k;
}

__global__ void mandelbrot_bands(int* __restrict__ out, int* next) {
#if VARIANT == 0
    // Each block takes a band of rows.
    int rows = (SIZE + gridDim.x - 1) / gridDim.x, first = blockIdx.x * rows;
    int last = min(first + rows, SIZE);
    for (int p = first * SIZE + threadIdx.x; p < last * SIZE; p += blockDim.x)
        out[p] = steps_of(p % SIZE, p / SIZE);
#else
    // A warp takes the next 32 x 8 pixels.
    for (;;) {
        int tile = 0;
        if (threadIdx.x % 32 == 0) tile = atomicAdd(next, 1);
        tile = __shfl_sync(0xffffffffu, tile, 0);
        if (tile >= SIZE * SIZE / 256) return;
        int x = tile % (SIZE / 32) * 32 + threadIdx.x % 32, y = tile / (SIZE / 32) * 8;
        for (int k = 0; k < 8; ++k) out[(y + k) * SIZE + x] = steps_of(x, y + k);
    }
#endif
}

int main() {
    int* out = field::zeros<int>(SIZE * SIZE);
    int* next = field::zeros<int>(1);
    const int blocks = field::sm_count() * 8;
    field::run([&] { CHECK(cudaMemset(next, 0, sizeof(int))); },
               [&] { mandelbrot_bands<<<blocks, 256>>>(out, next); });
    return field::report(out, SIZE * SIZE);
}
