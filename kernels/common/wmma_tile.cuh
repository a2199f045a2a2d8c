// What the WMMA rungs share: guarded copies of tiles, fragment loads from a stated memory, and the way out of an accumulator.
#pragma once

#include <mma.h>

#include "common/elem16.cuh"

typedef nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, elem16, nvcuda::wmma::row_major> FragmentA;
typedef nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, elem16, nvcuda::wmma::row_major> FragmentB;
typedef nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, elem16, nvcuda::wmma::col_major> FragmentBColumns;
typedef nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> FragmentC;

// For bfloat16, nvcc 13's load_matrix_sync knows no memory space: it becomes four-byte generic loads and, for a row-major B, MOVM
// transposes, where fp16 gets ldmatrix. The PTX instruction takes the space, so bfloat16 names it here; fp16 keeps the interface.
#if ELEM_BFLOAT16
#define DEFINE_FRAGMENT_LOAD(NAME, TYPE, OPERAND, LAYOUT, SPACE, CONSTRAINT, TO_ADDRESS)                                                 \
    __device__ __forceinline__ void NAME(TYPE& f, const elem16* p, int pitch) {                                                         \
        static_assert(sizeof(f.x) == 16, "a bfloat16 fragment is four registers");                                                      \
        unsigned* r = reinterpret_cast<unsigned*>(f.x);                                                                                 \
        asm volatile("wmma.load." OPERAND ".sync.aligned." LAYOUT ".m16n16k16." SPACE ".bf16 {%0, %1, %2, %3}, [%4], %5;"               \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : CONSTRAINT(TO_ADDRESS(p)), "r"(pitch) : "memory");              \
    }
#else
#define DEFINE_FRAGMENT_LOAD(NAME, TYPE, OPERAND, LAYOUT, SPACE, CONSTRAINT, TO_ADDRESS)                                                 \
    __device__ __forceinline__ void NAME(TYPE& f, const elem16* p, int pitch) { nvcuda::wmma::load_matrix_sync(f, p, pitch); }
#endif
#define SHARED_WINDOW(p) static_cast<unsigned>(__cvta_generic_to_shared(p))
DEFINE_FRAGMENT_LOAD(load_shared, FragmentA, "a", "row", "shared", "r", SHARED_WINDOW)
DEFINE_FRAGMENT_LOAD(load_shared, FragmentB, "b", "row", "shared", "r", SHARED_WINDOW)
DEFINE_FRAGMENT_LOAD(load_shared, FragmentBColumns, "b", "col", "shared", "r", SHARED_WINDOW)
DEFINE_FRAGMENT_LOAD(load_global, FragmentA, "a", "row", "global", "l", __cvta_generic_to_global)
DEFINE_FRAGMENT_LOAD(load_global, FragmentB, "b", "row", "global", "l", __cvta_generic_to_global)
#undef DEFINE_FRAGMENT_LOAD
#undef SHARED_WINDOW

// Copies a ROWS x COLS tile of a row-major matrix to shared memory, 16 bytes a lane, neighbouring lanes along the row: coalesced.
// Elements past the matrix's `rows` x `cols` become zero. `vector` says that its rows are 16-byte aligned.
template <int COLS, int THREADS, int ROWS, int PITCH>
__device__ __forceinline__ void copy_tile(elem16 (&tile)[ROWS][PITCH], const elem16* matrix, int row0, int col0, int rows, int cols, bool vector) {
    constexpr int COPIES = ROWS * COLS / CHUNK / THREADS, ROW_CHUNKS = COLS / CHUNK;
    static_assert(COPIES * THREADS * CHUNK == ROWS * COLS, "every thread copies the same number of chunks");
    const bool whole = vector && row0 + ROWS <= rows && col0 + COLS <= cols;  // the same for the whole block
    uint4 chunk[COPIES];
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {  // all loads before the first store, so that their latencies overlap
        const int index = threadIdx.x + i * THREADS, r = row0 + index / ROW_CHUNKS, c = col0 + index % ROW_CHUNKS * CHUNK;
        const elem16* source = matrix + (size_t)r * cols + c;
        if (whole) chunk[i] = *reinterpret_cast<const uint4*>(source);
        else chunk[i] = load_chunk_guarded(source, r < rows ? cols - c : 0, vector);
    }
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
        const int index = threadIdx.x + i * THREADS;
        *reinterpret_cast<uint4*>(&tile[index / ROW_CHUNKS][index % ROW_CHUNKS * CHUNK]) = chunk[i];
    }
}

// Writes one 16 x 16 accumulator to C. Which lane holds what is WMMA's secret, so it passes through `stage`, 256 floats of the calling warp.
__device__ __forceinline__ void store_wmma_tile(elem16* C, int row0, int col0, int M, int N, const FragmentC& sum, float* stage) {
    nvcuda::wmma::store_matrix_sync(stage, sum, 16, nvcuda::wmma::mem_row_major);
    __syncwarp();
    const int lane = threadIdx.x % 32, r = lane / 2, c = lane % 2 * CHUNK;
    float v[CHUNK];
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) v[i] = stage[r * 16 + c + i];
    const int remaining = row0 + r < M ? N - (col0 + c) : 0;
    store_chunk_guarded(C + (size_t)(row0 + r) * N + (col0 + c), v, remaining, N % CHUNK == 0);
    __syncwarp();  // the stage may be written again
}
