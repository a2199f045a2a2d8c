// Kernels that load one unit of the GPU while another kernel runs (ncu_toolkit/guests/probe/pressure.py).
//
// Two layouts. A block of 1024 threads with 64 registers each fills the register file of its multiprocessor, so no
// other block runs there: the streams press on L2 or device memory from other multiprocessors. A block of 160
// threads leaves room: on every multiprocessor it presses on the pipes that the other kernel uses there.
//
// Only one block on a multiprocessor works: two would take all issue slots, since older warps go first, and the other
// kernel would starve. The last warp of a block watches the control block and works on nothing. Data is zeros, so nothing computed matters.

struct Control {
    unsigned phase;               // 0: wait, 1: count the rounds, 2: stop
    unsigned ready;               // blocks that have started
    unsigned long long rounds;    // rounds of all working warps while phase was 1
    unsigned long long begin;     // of phase 1, in ns of the GPU's timer
    unsigned long long end;
    unsigned long long last;      // last start of a block
    unsigned failed;              // the blocks did not all start in time
    unsigned unused;
    unsigned sms[8];              // bit i: a block ran on multiprocessor i
    unsigned long long first;     // first start of a block; ~0 before the launch
    unsigned long long finished;  // first end of a block; ~0 before the launch
};

__device__ __forceinline__ unsigned long long now_ns() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

// Waits until `blocks` blocks of pressure run and `least_ns` have passed, so that everything enqueued behind is waiting.
extern "C" __global__ void begin(Control* control, unsigned blocks, unsigned long long least_ns, unsigned long long most_ns) {
    const unsigned long long start = now_ns();
    unsigned long long spent = 0;
    while (spent < least_ns || *(volatile unsigned*)&control->ready < blocks) {
        spent = now_ns() - start;
        if (spent > most_ns) {
            control->failed = 1;
            break;
        }
    }
    control->begin = now_ns();
    __threadfence();
    *(volatile unsigned*)&control->phase = 1;
}

extern "C" __global__ void finish(Control* control) {
    control->end = now_ns();
    __threadfence();
    *(volatile unsigned*)&control->phase = 2;
}

// Runs `work` in every warp but the last until phase 2, or for `most_ns`.
template <class Work>
__device__ __forceinline__ void press(Control* control, unsigned long long most_ns, unsigned* never, Work work) {
    __shared__ volatile unsigned phase;
    __shared__ bool second;  // another block of pressure is on this multiprocessor already: only wait
    const unsigned warps = blockDim.x / 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        phase = *(volatile unsigned*)&control->phase;
        unsigned sm;
        asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
        const unsigned bit = 1u << (sm % 32);
        second = sm < 256 && (atomicOr(&control->sms[sm / 32], bit) & bit);
        const unsigned long long t = now_ns();
        atomicMin(&control->first, t);
        atomicMax(&control->last, t);
        __threadfence();
        atomicAdd(&control->ready, 1u);
    }
    __syncthreads();
    if (warp == warps - 1) {
        const unsigned long long start = now_ns();
        unsigned seen = 0;
        while (seen != 2) {
            __nanosleep(200);
            seen = *(volatile unsigned*)&control->phase;
            if (now_ns() - start > most_ns) seen = 2;
            if (threadIdx.x % 32 == 0) phase = seen;
        }
        if (threadIdx.x % 32 == 0) atomicMin(&control->finished, now_ns());
        return;
    }
    while (second && phase != 2) __nanosleep(1000);
    unsigned place = (unsigned)__cvta_generic_to_shared((const void*)&phase);
    asm volatile("" : "+r"(place));  // kept in a register
    unsigned long long rounds = 0;
    unsigned seen = phase;
    while (seen != 2) {
        // Asked for before the work and used after it. Where the other kernel fills shared memory the answer takes longer
        // than a round of arithmetic, which would then lose speed to that, and not to arithmetic.
        unsigned next;
        asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(next) : "r"(place));
        work.round();
        rounds += seen;
        seen = next;
    }
    if (threadIdx.x % 32 == 0) atomicAdd(&control->rounds, rounds);
    if (work.result() == 1u) *never = 1u;
}

#define ARGUMENTS Control *control, const uint4 *data, unsigned long long mask, unsigned seed, unsigned long long most_ns, unsigned *never

// Reads 4 KiB a warp and round, in order, from a place that differs from launch to launch. `mask` + 1 is the number of
// 4 KiB pieces in the buffer. With `Hold`, 56 registers stay live once, so that the block gets all of a register file.
template <bool Cached>
struct Stream {
    const uint4* data;
    unsigned long long mask, at, step;
    unsigned seen;
    __device__ void round() {
        const uint4* piece = data + (at & mask) * 256 + threadIdx.x % 32;
        uint4 v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = Cached ? __ldcg(piece + i * 32) : __ldcs(piece + i * 32);
#pragma unroll
        for (int i = 0; i < 8; ++i) seen |= v[i].x | v[i].w;
        at += step;
    }
    __device__ unsigned result() { return seen; }
};

struct Idle {
    __device__ void round() { __nanosleep(1000); }
    __device__ unsigned result() { return 0; }
};

// Keeps 56 values live at once, never executed: makes ptxas give every thread of the kernel 64 registers.
__device__ __forceinline__ void hold_registers(const uint4* data, unsigned* never) {
    if (data == nullptr) {
        unsigned v[56];
#pragma unroll
        for (int i = 0; i < 56; ++i) v[i] = ((volatile unsigned*)never)[i];
#pragma unroll
        for (int i = 55; i >= 0; --i) ((volatile unsigned*)never)[64 + i] = v[i];
    }
}

template <bool Cached>
__device__ __forceinline__ Stream<Cached> stream(const uint4* data, unsigned long long mask, unsigned seed) {
    const unsigned long long warps = blockDim.x / 32 - 1;
    const unsigned long long mine = blockIdx.x * warps + threadIdx.x / 32;
    return {data, mask, mine + seed * 0x9E3779B1ull, warps * gridDim.x, 0u};
}

extern "C" __global__ void __launch_bounds__(1024, 1) pressure_alone(ARGUMENTS) {
    hold_registers(data, never);
    press(control, most_ns, never, Idle{});
}

extern "C" __global__ void __launch_bounds__(1024, 1) pressure_dram(ARGUMENTS) {
    hold_registers(data, never);
    press(control, most_ns, never, stream<false>(data, mask, seed));
}

extern "C" __global__ void __launch_bounds__(1024, 1) pressure_l2(ARGUMENTS) {
    hold_registers(data, never);
    press(control, most_ns, never, stream<true>(data, mask, 0u));
}

// From here on: 4 working warps of a block, one on each scheduler, which share the multiprocessor with the other kernel.

extern "C" __global__ void __launch_bounds__(160) pressure_beside(ARGUMENTS) {
    press(control, most_ns, never, Idle{});
}

// A dependent chain issues about every fourth cycle: two take about half of the issue slots and of the FMA pipe.
struct Fma {
    float x[2], a;
    __device__ void round() {
#pragma unroll 1
        for (int i = 0; i < 16; ++i) {
#pragma unroll
            for (int j = 0; j < 16; ++j)
#pragma unroll
                for (int c = 0; c < 2; ++c) asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x[c]) : "f"(a));
        }
    }
    __device__ unsigned result() {
        float sum = 0.f;
        for (int c = 0; c < 2; ++c) sum += x[c];
        return sum == 0.123456f;
    }
};

extern "C" __global__ void __launch_bounds__(160) pressure_fp32(ARGUMENTS) {
    Fma work;
    for (int c = 0; c < 2; ++c) work.x[c] = (float)(threadIdx.x + c);
    work.a = 0.5f + seed * 1e-12f;
    press(control, most_ns, never, work);
}

struct Special {
    float x[2];
    __device__ void round() {
#pragma unroll 1
        for (int i = 0; i < 16; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[0]));
                asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[1]));
            }
        }
    }
    __device__ unsigned result() { return x[0] + x[1] == 0.123456f; }
};

extern "C" __global__ void __launch_bounds__(160) pressure_special(ARGUMENTS) {
    Special work{{-1.f, -2.f}};
    press(control, most_ns, never, work);
}

// Chains of 16-byte loads from shared memory without bank conflicts: four passes an instruction and warp.
struct Shared {
    unsigned at[2];
    __device__ void round() {
#pragma unroll 1
        for (int i = 0; i < 16; ++i) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                unsigned y, z, w, next;
                asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(next), "=r"(y), "=r"(z), "=r"(w) : "r"(at[c]));
                at[c] += next | y | z | w;  // all four, or ptxas loads only the first
            }
        }
    }
    __device__ unsigned result() {
        unsigned all = 0;
        for (int c = 0; c < 2; ++c) all ^= at[c];
        return all == 0x1234567u;
    }
};

extern "C" __global__ void __launch_bounds__(160) pressure_shared(ARGUMENTS) {
    __shared__ uint4 zeros[128];
    if (threadIdx.x < 128) zeros[threadIdx.x] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    Shared work;
    for (int c = 0; c < 2; ++c) work.at[c] = (unsigned)__cvta_generic_to_shared(zeros + (threadIdx.x + 32 * c) % 128);
    press(control, most_ns, never, work);
}

__constant__ unsigned table[32 * 8];

// Lanes read different words of constant memory, which are served one after the other.
struct Constant {
    unsigned at;
    __device__ void round() {
#pragma unroll 1
        for (int i = 0; i < 16; ++i) at += table[at];
    }
    __device__ unsigned result() { return at == 0x1234567u; }
};

extern "C" __global__ void __launch_bounds__(160) pressure_constant(ARGUMENTS) {
    Constant work{threadIdx.x % 32 * 8};
    press(control, most_ns, never, work);
}

// The integer pipe takes a warp every second cycle: two dependent chains a warp nearly fill it, with half of the issue slots.
struct Integer {
    unsigned x[2], a, b;
    __device__ void round() {
#pragma unroll 1
        for (int i = 0; i < 16; ++i) {
#pragma unroll
            for (int j = 0; j < 8; ++j)
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(x[c]) : "r"(a), "r"(b));
                    asm volatile("shf.l.wrap.b32 %0, %0, %1, 7;" : "+r"(x[c]) : "r"(a));
                }
        }
    }
    __device__ unsigned result() { return (x[0] ^ x[1]) == 0x1234567u; }
};

extern "C" __global__ void __launch_bounds__(160) pressure_integer(ARGUMENTS) {
    press(control, most_ns, never, Integer{{threadIdx.x, threadIdx.x + 1u}, seed, (unsigned)mask});
}
