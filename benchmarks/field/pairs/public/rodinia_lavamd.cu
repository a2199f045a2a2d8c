// Forces between particles in neighbouring boxes, 14 x 14 x 14 boxes of 100: Rodinia's lavaMD and its version in the GPA benchmark.
// tolerance: 1e-9
// from: GPA-Benchmark
// before kernel: kernel_gpu_cuda
// after kernel: kernel_gpu_cuda
#include "public.cuh"
#if VARIANT == 0
#include "rodinia/lavaMD/main.h"
#include "rodinia/lavaMD/kernel/kernel_gpu_cuda.cu"
#else
#include "rodinia/lavaMD-opt/main.h"
#include "rodinia/lavaMD-opt/kernel/kernel_gpu_cuda.cu"
#endif
#undef main

int main() {
    const int side = 14, boxes = side * side * side, particles = boxes * NUMBER_PAR_PER_BOX;
    std::vector<box_str> box(boxes);
    for (int i = 0; i < boxes; ++i) {
        box_str& own = box[i];
        own.x = i % side, own.y = i / side % side, own.z = i / side / side;
        own.number = i, own.offset = long(i) * NUMBER_PAR_PER_BOX, own.nn = 0;
        for (int z = own.z - 1; z <= own.z + 1; ++z)
            for (int y = own.y - 1; y <= own.y + 1; ++y)
                for (int x = own.x - 1; x <= own.x + 1; ++x) {
                    int other = (z * side + y) * side + x;
                    bool inside = std::min({x, y, z}) >= 0 && std::max({x, y, z}) < side;
                    if (!inside || other == i) continue;
                    own.nei[own.nn++] = {x, y, z, other, long(other) * NUMBER_PAR_PER_BOX};
                }
    }
    par_str parameters = {};
    parameters.alpha = 0.5;
    dim_str sizes = {};
    sizes.number_boxes = boxes;
    box_str* boxes_on_gpu = field::copied(box);
    auto* place = field::filled<FOUR_VECTOR>(particles, [] __device__(size_t i) {
        return FOUR_VECTOR{0.1 + field::unit(i, 1), 0.1 + field::unit(i, 2), 0.1 + field::unit(i, 3),
                           0.1 + field::unit(i, 4)};
    });
    double* charge = field::numbers<double>(particles, 5, 0.1f, 1.1f);
    auto* force = field::zeros<FOUR_VECTOR>(particles);
    field::run([&] { field::clear(force, particles); }, [&] {
        kernel_gpu_cuda<<<boxes, NUMBER_THREADS>>>(parameters, sizes, boxes_on_gpu, place, charge, force);
    });
    return field::report(reinterpret_cast<double*>(force), size_t(particles) * 4);
}
