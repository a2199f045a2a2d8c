// A million walks of 64 steps through an automaton of 65,536 states, counting in shared memory.
// tolerance: 0
#include "field.cuh"

const int STATES = 1 << 16, STEPS = 64;
// Counters of four classes for each thread; the slow side reserves the most that any caller needs.
const int SCRATCH = VARIANT == 0 ? 160 * 1024 : 4 * 128 * int(sizeof(int));

__global__ void fixed_scratch(const int4* __restrict__ next, int* __restrict__ result) {
    extern __shared__ int counts[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int c = 0; c < 4; ++c) counts[c * 128 + threadIdx.x] = 0;
    int state = field::hash(i) % STATES;
    unsigned input = field::hash(i + 12345u);
    for (int s = 0; s < STEPS; ++s) {
        int symbol = (input >> (s % 16 * 2)) & 3;
        state = reinterpret_cast<const int*>(next)[state * 4 + symbol];
        counts[(state & 3) * 128 + threadIdx.x] += symbol + 1;
    }
    int sum = state;
    for (int c = 0; c < 4; ++c) sum += (c + 1) * counts[c * 128 + threadIdx.x];
    result[i] = sum;
}

int main() {
    const int walks = 1 << 20;
    auto* next = field::filled<int4>(STATES, [] __device__(size_t i) {
        unsigned b = unsigned(i) * 4;
        return make_int4(field::hash(b) % STATES, field::hash(b + 1) % STATES,
                         field::hash(b + 2) % STATES, field::hash(b + 3) % STATES);
    });
    int* result = field::zeros<int>(walks);
    CHECK(cudaFuncSetAttribute(fixed_scratch, cudaFuncAttributeMaxDynamicSharedMemorySize, SCRATCH));
    field::run([&] { fixed_scratch<<<walks / 128, 128, SCRATCH>>>(next, result); });
    return field::report(result, walks);
}
