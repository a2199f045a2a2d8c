// Warp-level tensor-core instructions (compute capability 8.0 and later): ldmatrix and mma.m16n8k16.
#pragma once

#include "common/elem16.cuh"

// Four 8 x 8 matrices in one instruction. Lane l gives the address of row l % 8 of matrix l / 8 (16 bytes), and receives
// elements 2 * (l % 4) and + 1 of row l / 4 of each matrix: the layout in which mma wants its A operand.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&d)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(address));
}

// The same, each matrix transposed on the way: B lies in memory with k along rows, and mma wants pairs along k.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&d)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(address));
}

// d (16 x 8, fp32) += a (16 x 16) * b (16 x 8). Lane l holds d[0..1] at row l / 4, columns 2 * (l % 4) and + 1, and d[2..3] eight rows below.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." ELEM16_PTX "." ELEM16_PTX ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
