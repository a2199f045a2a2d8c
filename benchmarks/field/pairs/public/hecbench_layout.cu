// Sums over 4096 trees of 4096 integers each, with HeCBench's two kernels of layout-cuda.
// tolerance: 0
// from: HeCBench
// before kernel: AoSKernel
// after kernel: SoAKernel
#include "public.cuh"
#include "src/layout-cuda/main.cu"
#undef main

int main() {
    const size_t n = size_t(TREE_NUM) * TREE_SIZE;
    // Tree t holds hash(t * TREE_SIZE + i) % 1000 in place i.
    int* in = field::filled<int>(n, [] __device__(size_t i) {
        size_t tree = VARIANT == 0 ? i / TREE_SIZE : i % TREE_NUM;
        size_t place = VARIANT == 0 ? i % TREE_SIZE : i / TREE_NUM;
        return int(field::hash(tree * TREE_SIZE + place) % 1000);
    });
    int* out = field::zeros<int>(TREE_NUM);
    field::run([&] {
#if VARIANT == 0
        AoSKernel<TREE_SIZE><<<TREE_NUM / 32, 32>>>(reinterpret_cast<AppleTree*>(in), out);
#else
        SoAKernel<TREE_SIZE><<<TREE_NUM / 32, 32>>>(reinterpret_cast<ApplesOnTrees*>(in), out);
#endif
    });
    return field::report(out, TREE_NUM);
}
