// Look up 16 million keys in a hash table of 8 million.
// tolerance: 0
#include "field.cuh"

const unsigned KEYS = 1u << 23, SLOTS = VARIANT == 0 ? 1u << 21 : 1u << 22;

// A bijection, so that keys are distinct.
__host__ __device__ inline unsigned key_of(unsigned i) { return field::hash(i + 1); }

struct Node {
    unsigned key, value;
    int next, pad;
};

struct alignas(32) Bucket {
    unsigned key[4], value[4];
};

#if VARIANT == 0
__global__ void hash_probe(const unsigned* __restrict__ query, const int* __restrict__ head,
                           const Node* __restrict__ node, unsigned* __restrict__ out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, key = query[i], value = 0;
    for (int n = head[field::hash(key) % SLOTS]; n >= 0; n = node[n].next)
        if (node[n].key == key) {
            value = node[n].value;
            break;
        }
    out[i] = value;
}
#else
__global__ void hash_probe(const unsigned* __restrict__ query, const Bucket* __restrict__ table,
                           unsigned* __restrict__ out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, key = query[i], value = 0;
    for (unsigned b = field::hash(key) % SLOTS;; b = (b + 1) % SLOTS) {
        const uint4* line = reinterpret_cast<const uint4*>(table + b);
        uint4 k = line[0], v = line[1];
        if (k.x == key) value = v.x;
        if (k.y == key) value = v.y;
        if (k.z == key) value = v.z;
        if (k.w == key) value = v.w;
        if (value || k.w == 0) break;
    }
    out[i] = value;
}
#endif

int main() {
    const int queries = 1 << 24;
    auto* query = field::filled<unsigned>(queries, [] __device__(size_t i) {
        return key_of(field::hash(uint32_t(i) + 99u) % KEYS);
    });
    auto* out = field::zeros<unsigned>(queries);
#if VARIANT == 0
    std::vector<int> heads(SLOTS, -1);
    std::vector<Node> nodes(KEYS);
    for (unsigned i = 0; i < KEYS; ++i) {
        int& head = heads[field::hash(key_of(i)) % SLOTS];
        nodes[i] = {key_of(i), i + 1, head, 0};
        head = int(i);
    }
    int* head = field::copied(heads);
    Node* node = field::copied(nodes);
    field::run([&] { hash_probe<<<queries / 256, 256>>>(query, head, node, out); });
#else
    std::vector<Bucket> buckets(SLOTS, Bucket{});
    for (unsigned i = 0; i < KEYS; ++i) {
        unsigned b = field::hash(key_of(i)) % SLOTS, s = 0;
        for (; buckets[b].key[s]; s == 3 ? (s = 0, b = (b + 1) % SLOTS) : ++s) {
        }
        buckets[b].key[s] = key_of(i);
        buckets[b].value[s] = i + 1;
    }
    Bucket* table = field::copied(buckets);
    field::run([&] { hash_probe<<<queries / 256, 256>>>(query, table, out); });
#endif
    return field::report(out, queries);
}
