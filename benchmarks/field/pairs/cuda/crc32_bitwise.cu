// The CRC-32 of a million packets of 256 bytes.
// tolerance: 0
#include "field.cuh"

const int PACKETS = 1 << 20, WORDS = 64;

// Word w of packet p is at data[w * PACKETS + p].
__global__ void crc32_bitwise(const unsigned* __restrict__ data, const unsigned* __restrict__ tables,
                              unsigned* __restrict__ out) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned crc = 0xffffffffu;
#if VARIANT == 0
    for (int w = 0; w < WORDS; ++w) {
        crc ^= data[w * PACKETS + p];
        for (int bit = 0; bit < 32; ++bit) crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1u));
    }
#else
    __shared__ unsigned table[4][256];
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) table[k / 256][k % 256] = tables[k];
    __syncthreads();
#pragma unroll 4
    for (int w = 0; w < WORDS; ++w) {
        crc ^= data[w * PACKETS + p];
        crc = table[3][crc & 255] ^ table[2][(crc >> 8) & 255] ^ table[1][(crc >> 16) & 255] ^
              table[0][crc >> 24];
    }
#endif
    out[p] = ~crc;
}

int main() {
    std::vector<unsigned> tables(1024);
    for (unsigned b = 0; b < 256; ++b) {
        unsigned crc = b;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1u));
        tables[b] = crc;
    }
    for (int k = 256; k < 1024; ++k) tables[k] = (tables[k - 256] >> 8) ^ tables[tables[k - 256] & 255];
    auto* data = field::filled<unsigned>(size_t(PACKETS) * WORDS, [] __device__(size_t i) {
        return field::hash(uint32_t(i));
    });
    unsigned* table = field::copied(tables);
    auto* out = field::zeros<unsigned>(PACKETS);
    field::run([&] { crc32_bitwise<<<PACKETS / 256, 256>>>(data, table, out); });
    return field::report(out, PACKETS);
}
