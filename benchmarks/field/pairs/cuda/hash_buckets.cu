// The bucket of each of 64 million 64-bit keys in a table whose size is a prime known at run time.
// tolerance: 0
#include "field.cuh"

__global__ void hash_buckets(const unsigned long long* __restrict__ key, unsigned* __restrict__ bucket,
                             unsigned long long buckets, unsigned long long reciprocal) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    unsigned long long k = key[i];
    k ^= k >> 31;
#if VARIANT == 0
    bucket[i] = unsigned(k % buckets);
#else
    unsigned long long rest = k - __umul64hi(k, reciprocal) * buckets;
    if (rest >= buckets) rest -= buckets;
    if (rest >= buckets) rest -= buckets;
    bucket[i] = unsigned(rest);
#endif
}

int main(int argc, char**) {
    const size_t n = size_t(1) << 26;
    const unsigned long long buckets = 1000003ull + argc - 1;
    auto* key = field::filled<unsigned long long>(n, [] __device__(size_t i) {
        return (unsigned long long)(field::hash(uint32_t(i))) << 32 | field::hash(uint32_t(i) + 77u);
    });
    auto* bucket = field::zeros<unsigned>(n);
    field::run([&] { hash_buckets<<<unsigned(n / 256), 256>>>(key, bucket, buckets, ~0ull / buckets); });
    return field::report(bucket, n);
}
