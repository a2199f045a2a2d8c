// One level of a breadth-first search: 262,144 vertices whose degrees follow a power law mark their neighbours.
// tolerance: 0
#include "field.cuh"

__global__ void bfs_level(const int* __restrict__ frontier, int count, const int* __restrict__ start,
                          const int* __restrict__ edge, int* level) {
#if VARIANT == 0
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int first = 0, step = 1;
#else
    int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int first = threadIdx.x % 32, step = 32;
#endif
    if (i >= count) return;
    int v = frontier[i];
    for (int e = start[v] + first; e < start[v + 1]; e += step) {
        int u = edge[e];
        if (level[u] < 0) level[u] = 1;
    }
}

int main() {
    const int count = 1 << 18, vertices = 1 << 24;
    std::vector<int> start(1, 0);
    for (int v = 0; v < count; ++v) {
        float u = field::unit(v, 3) + 1e-7f;
        start.push_back(start.back() + std::min(8000, int(8.0f * std::pow(u, -0.75f))));
    }
    int* starts = field::copied(start);
    int* edge = field::filled<int>(start.back(), [] __device__(size_t i) {
        return int(field::hash(uint32_t(i)) % (1u << 24));
    });
    int* frontier = field::filled<int>(count, [] __device__(size_t i) {
        return int((i * 40503) % (1u << 18));
    });
    int* level = field::zeros<int>(vertices);
    const int per_block = VARIANT == 0 ? 256 : 8;
    field::run([&] { CHECK(cudaMemset(level, 0xff, vertices * sizeof(int))); },
               [&] { bfs_level<<<count / per_block, 256>>>(frontier, count, starts, edge, level); });
    return field::report(level, vertices);
}
