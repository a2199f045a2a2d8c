// One level of a breadth-first search over 4 million vertices and 31 million edges: Rodinia's bfs and its version in the GPA benchmark.
// tolerance: 0
// from: GPA-Benchmark
// before kernel: Kernel
// after kernel: Kernel
#include "public.cuh"
#if VARIANT == 0
#include "rodinia/bfs/bfs.cu"
#else
#include "rodinia/bfs-opt/bfs.cu"
#endif
#undef main

int main() {
    const int n = 1 << 22;
    std::vector<Node> vertex(n);
    int edges = 0;
    for (int i = 0; i < n; ++i) {
        vertex[i] = {edges, 4 + int(field::hash(i) % 8)};
        edges += vertex[i].no_of_edges;
    }
    Node* vertices = field::copied(vertex);
    int* edge = field::filled<int>(edges, [=] __device__(size_t i) { return field::hash(i + 77) % n; });
    // A quarter of the vertices is the frontier, an eighth of the others was visited before.
    auto frontier = [] __device__(size_t i) { return field::hash(i + 5) % 4 == 0; };
    bool* start = field::filled<bool>(n, frontier);
    bool* visited = field::filled<bool>(n, [=] __device__(size_t i) {
        return frontier(i) || field::hash(i + 9) % 8 == 0;
    });
    int* cost_before = field::filled<int>(n, [=] __device__(size_t i) { return frontier(i) ? 5 : -1; });
    bool *mask = field::zeros<bool>(n), *updating = field::zeros<bool>(n);
    int* cost = field::zeros<int>(n);
    auto reset = [&] {
        field::restore(mask, start, n);
        field::restore(cost, cost_before, n);
        field::clear(updating, n);
    };
    field::run(reset, [&] {
        Kernel<<<n / MAX_THREADS_PER_BLOCK, MAX_THREADS_PER_BLOCK>>>(vertices, edge, mask, updating,
                                                                      visited, cost, n);
    });
    return field::report(cost, n);
}
