// 60,000 range queries to a B+ tree of order 256 with 16.8 million keys: Rodinia's b+tree and its version in the GPA benchmark.
// tolerance: 0
// from: GPA-Benchmark
// before kernel: findRangeK
// after kernel: findRangeK
#include "public.cuh"
#if VARIANT == 0
#include "rodinia/b+tree/common.h"
#include "rodinia/b+tree/kernel/kernel_gpu_cuda_2.cu"
#else
#include "rodinia/b+tree-opt/common.h"
#include "rodinia/b+tree-opt/kernel/kernel_gpu_cuda_2.cu"
#endif
#undef main

int main() {
    const int order = DEFAULT_ORDER, leaves = order * order, keys = leaves * order, queries = 60000;
    const int first_leaf = 1 + order, nodes = first_leaf + leaves;
    // Node 0 is the root, 1 to 256 are below it, the leaves follow. Leaf j holds 256 j and onwards.
    std::vector<knode> tree(nodes);
    for (int i = 0; i < nodes; ++i) {
        int place = i == 0 ? 0 : i < first_leaf ? i - 1 : i - first_leaf;
        int each = i == 0 ? leaves : i < first_leaf ? order : 1;  // keys below one entry
        tree[i].location = i, tree[i].num_keys = order, tree[i].is_leaf = i >= first_leaf;
        for (int s = 0; s <= order; ++s) {
            int key = place * order * each + s * each;
            tree[i].keys[s] = key;
            tree[i].indices[s] = i == 0 ? 1 + s : i < first_leaf ? first_leaf + place * order + s : key;
        }
    }
    knode* on_gpu = field::copied(tree);
    int* start = field::filled<int>(queries, [=] __device__(size_t i) {
        return field::hash(i) % (keys - 1000);
    });
    int* end = field::filled<int>(queries, [=] __device__(size_t i) {
        return field::hash(i) % (keys - 1000) + field::hash(i + 99) % 1000;
    });
    long* state = field::zeros<long>(4 * queries);
    int* found = field::zeros<int>(2 * queries);
    auto reset = [&] {
        field::clear(state, 4 * queries);
        field::clear(found, 2 * queries);
    };
    field::run(reset, [&] {
        findRangeK<<<queries, order>>>(2, on_gpu, nodes, state, state + queries, state + 2 * queries,
                                       state + 3 * queries, start, end, found, found + queries);
    });
    return field::report(found, 2 * queries);
}
