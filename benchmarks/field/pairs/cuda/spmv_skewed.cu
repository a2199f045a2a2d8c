// A sparse matrix times a vector where 60 rows hold half of the entries; a warp takes a piece of a row.
// tolerance: 1e-4
#include "field.cuh"

struct Piece {
    int row, start, end;
};

// Rows longer than this are cut.
const int LONGEST = VARIANT == 0 ? 1 << 30 : 1024;

__global__ void spmv_skewed(const Piece* __restrict__ pieces, int count,
                            const int* __restrict__ column, const float* __restrict__ value,
                            const float* __restrict__ x, float* __restrict__ y) {
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (warp >= count) return;
    Piece piece = pieces[warp];
    float sum = 0.0f;
    for (int e = piece.start + lane; e < piece.end; e += 32) sum += value[e] * x[column[e]];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (lane == 0) atomicAdd(&y[piece.row], sum);
}

int main() {
    const int rows = 1 << 20;
    std::vector<Piece> pieces;
    int entries = 0;
    for (int row = 0; row < rows; ++row) {
        int length = row % 17476 == 17000 ? 250000 : 16;
        for (int done = 0; done < length; done += LONGEST) {
            int end = length - done < LONGEST ? length : done + LONGEST;
            pieces.push_back({row, entries + done, entries + end});
            if (end == length) break;
        }
        entries += length;
    }
    int* column = field::filled<int>(entries, [] __device__(size_t i) {
        return int(field::hash(uint32_t(i)) % (1u << 20));
    });
    float* value = field::filled<float>(entries, [] __device__(size_t i) { return field::unit(i, 1); });
    float* x = field::filled<float>(rows, [] __device__(size_t i) { return field::unit(i, 2); });
    float* y = field::zeros<float>(rows);
    Piece* list = field::copied(pieces);
    const int count = int(pieces.size());
    field::run([&] { CHECK(cudaMemset(y, 0, rows * sizeof(float))); },
               [&] { spmv_skewed<<<(count + 7) / 8, 256>>>(list, count, column, value, x, y); });
    return field::report(y, rows);
}
