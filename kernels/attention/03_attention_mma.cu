/*+++
title = "mma.sync with ldmatrix"
idea = """\
Both products run on the tensor cores, from swizzled tiles that cp.async fills while the other \
product is computed. The accumulators of the scores, rounded in pairs, already have the layout of \
the left operand of the second product, so that the exponentials never leave registers."""
kind = "step"
compared_with = "attention_fused"
+++*/

#include "common/cp_async.cuh"
#include "common/mma.cuh"
#include "attention/softmax.cuh"

#define D HEAD_SIZE
#define THREADS (ROWS / WARP_ROWS * WARP_SIZE)
#define BANDS (WARP_ROWS / 16)  // of 16 rows, in a warp

// Where 16-byte chunk `chunk` of row `row` lies. ldmatrix reads one chunk of eight rows at once; XOR with the row spreads the eight over all
// banks.
template <int CHUNKS>
__device__ __forceinline__ int swizzled(int row, int chunk) { return row * CHUNKS + (chunk ^ row % 8); }

// Starts the copy of COUNT rows, of which `rows` exist; the others become zeros.
template <int COUNT>
__device__ __forceinline__ void copy_rows(uint4* tile, const elem16* source, int rows) {
    constexpr int CHUNKS = D / CHUNK;
    const int c = threadIdx.x % CHUNKS;
#pragma unroll
    for (int i = 0; i < COUNT * CHUNKS / THREADS; ++i) {
        const int r = threadIdx.x / CHUNKS + i * (THREADS / CHUNKS);
        cp_async_16_zfill(shared_address(tile + swizzled<CHUNKS>(r, c)), source + (size_t)(r < rows ? r : 0) * D + c * CHUNK, r < rows ? 16 : 0);
    }
    cp_async_commit();
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
attention_mma(const elem16* __restrict__ Q, const elem16* __restrict__ K, const elem16* __restrict__ V, elem16* __restrict__ O, int N, int causal) {
    constexpr int CHUNKS = D / CHUNK;
    extern __shared__ __align__(128) uint4 tiles[];
    uint4 *q_tile = tiles, *k_tile = q_tile + ROWS * CHUNKS, *v_tile = k_tile + KEYS * CHUNKS;
    const int lane = threadIdx.x % WARP_SIZE, warp_row = threadIdx.x / WARP_SIZE * WARP_ROWS;
    // Late tiles of queries first: where the mask is causal they are the longest.
    const int tile_row = (gridDim.x - 1 - blockIdx.x) * ROWS;
    const size_t head = (size_t)blockIdx.y * N;
    const int blocks = key_blocks<KEYS>(tile_row + ROWS, N, causal), whole = (causal ? min(tile_row + 1, N) : N) / KEYS;

    copy_rows<ROWS>(q_tile, Q + (head + tile_row) * D, N - tile_row);
    copy_rows<KEYS>(k_tile, K + head * D, N);

    float out[BANDS][D / 8][4] = {};
    RowPair rows[BANDS];
#pragma unroll
    for (int b = 0; b < BANDS; ++b) rows[b] = {{MINUS_INFINITY, MINUS_INFINITY}, {0.f, 0.f}};

    for (int block = 0; block < blocks; ++block) {
        const int key0 = block * KEYS;
        cp_async_wait<0>();
        __syncthreads();  // the keys are here for all, and all are done with the values before
        copy_rows<KEYS>(v_tile, V + (head + key0) * D, N - key0);

        float scores[BANDS][KEYS / 8][4] = {};
#pragma unroll
        for (int step = 0; step < D / 16; ++step) {
            unsigned q[BANDS][4];
#pragma unroll
            for (int b = 0; b < BANDS; ++b)
                ldmatrix_x4(q[b], shared_address(q_tile + swizzled<CHUNKS>(warp_row + b * 16 + lane % 16, step * 2 + lane / 16)));
#pragma unroll
            for (int n = 0; n < KEYS / 16; ++n) {
                unsigned k[4];  // 16 keys: two halves along k of the first eight, then of the others
                ldmatrix_x4(k, shared_address(k_tile + swizzled<CHUNKS>(n * 16 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2)));
#pragma unroll
                for (int b = 0; b < BANDS; ++b) {
                    mma_m16n8k16(scores[b][n * 2], q[b], k[0], k[1]);
                    mma_m16n8k16(scores[b][n * 2 + 1], q[b], k[2], k[3]);
                }
            }
        }

        unsigned powers[BANDS][KEYS / 16][4];
#pragma unroll
        for (int b = 0; b < BANDS; ++b) {
            float(&s)[KEYS / 2] = reinterpret_cast<float(&)[KEYS / 2]>(scores[b]);
            if (block >= whole) mask_scores(s, tile_row + warp_row + b * 16, key0, N, causal);
            float factor[2];
            online_softmax<D, false>(s, rows[b], factor);
#pragma unroll
            for (int n = 0; n < D / 8; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e) out[b][n][e] *= factor[e / 2];
            // Accumulators of one product, rounded in pairs, are the left operand of the next: powers never leave registers.
#pragma unroll
            for (int i = 0; i < KEYS / 4; ++i) powers[b][i / 4][i % 4] = pack_elem16(s[i * 2], s[i * 2 + 1]);
        }

        cp_async_wait<0>();
        __syncthreads();  // the values are here, and all are done with the keys
        if (block + 1 < blocks) copy_rows<KEYS>(k_tile, K + (head + key0 + KEYS) * D, N - key0 - KEYS);
#pragma unroll
        for (int step = 0; step < KEYS / 16; ++step)
#pragma unroll
            for (int n = 0; n < D / 16; ++n) {
                unsigned v[4];
                ldmatrix_x4_trans(v, shared_address(v_tile + swizzled<CHUNKS>(step * 16 + lane % 16, n * 2 + lane / 16)));
#pragma unroll
                for (int b = 0; b < BANDS; ++b) {
                    mma_m16n8k16(out[b][n * 2], powers[b][step], v[0], v[1]);
                    mma_m16n8k16(out[b][n * 2 + 1], powers[b][step], v[2], v[3]);
                }
            }
    }
#pragma unroll
    for (int b = 0; b < BANDS; ++b) {
        float inverse[2];
        finish_rows(rows[b], inverse);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = tile_row + warp_row + b * 16 + half * 8 + lane / 4;
            if (row >= N) continue;
#pragma unroll
            for (int n = 0; n < D / 8; ++n)
                *reinterpret_cast<unsigned*>(O + (head + row) * D + n * 8 + lane % 4 * 2) =
                    pack_elem16(out[b][n][half * 2] * inverse[half], out[b][n][half * 2 + 1] * inverse[half]);
        }
    }
}

/*+++
minimum_cc = "8.0"

[source]
document = "FlashAttention-2"

[parameters]
ROWS = 64                 # queries of a block
WARP_ROWS = 16            # of a warp
KEYS = 64
BLOCKS = 2                # resident on an SM, at least

[search]
ROWS = [64, 128]
WARP_ROWS = [16, 32]
KEYS = [32, 64, 128]
BLOCKS = [1, 2]

[[constraint]]
check = "ROWS % WARP_ROWS == 0 and WARP_ROWS % 16 == 0 and KEYS % 16 == 0"
says = "a warp's tile is made of 16 x 16 steps"

[[constraint]]
check = "ROWS // WARP_ROWS >= 2 and BLOCKS * (ROWS + 2 * KEYS) * 256 <= 232448"
says = "the tiles of all resident blocks must fit in shared memory"

[[launch]]
kernel = "attention_mma"
grid = ["ceil_div(N, ROWS)", "heads", "1"]
block = ["ROWS // WARP_ROWS * 32", "1", "1"]
shared = "(ROWS + 2 * KEYS) * D * 2"
args = ["Q", "K", "V", "O", "N", "causal"]

[expect.sass]
present = ["HMMA.16816.F32", "LDSM.16.M88.4", "LDSM.16.MT88.4", "LDGSTS.E.BYPASS", "MUFU.EX2"]
absent = ["HGMMA", "LDL", "STL"]
max_registers = 255

[[expect.profile]]
says = "both products are computed once: 16 heads of 128 and 16384 tokens, 2048 multiply-adds an instruction"
check = "executed('HMMA') == 2 * 16384 * N"
sizes = ["4096x128"]

[[expect.profile]]
says = "powers never leave registers"
check = "executed('STS') == 0 < prev_executed('STS')"

[[expect.profile]]
says = "FFMA is left for the softmax only"
check = "executed('FFMA') < 0.02 * prev_executed('FFMA')"
+++*/
