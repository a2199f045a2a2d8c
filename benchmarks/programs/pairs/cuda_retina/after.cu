// Multi-scale vessel enhancement (Frangi-like) of a retina photograph.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(cudaError_t err, const char* what) {
    if (err != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(err));
        std::exit(1);
    }
}

const int W = 2048, H = 2048;
const dim3 kBlock(32, 8);
const dim3 kGrid(W / 32, H / 8);

// A float image on the device.
class Image {
public:
    Image() { check(cudaMalloc(&data_, sizeof(float) * W * H), "image"); }
    ~Image() { cudaFree(data_); }
    Image(const Image&) = delete;
    Image& operator=(const Image&) = delete;
    float* get() { return data_; }
    const float* get() const { return data_; }
private:
    float* data_ = nullptr;
};

// What a call of enhance() needs besides its input and output.
struct Scratch {
    Image rows, smoothed, xx, xy, yy;
};

struct Taps {
    int radius;
    float w[20];
};

Taps gaussian(float sigma) {
    Taps t{};
    t.radius = std::min(19, int(std::ceil(2.5f * sigma)));
    float sum = 0;
    for (int i = 0; i <= t.radius; ++i) {
        t.w[i] = std::exp(-0.5f * i * i / (sigma * sigma));
        sum += i ? 2 * t.w[i] : t.w[i];
    }
    for (int i = 0; i <= t.radius; ++i) t.w[i] /= sum;
    return t;
}

__device__ inline int clampi(int v, int hi) { return min(max(v, 0), hi); }

__global__ void blur_rows(const float* __restrict__ in, float* __restrict__ out,
                          const __grid_constant__ Taps t) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const float* row = in + y * W;
    float sum = t.w[0] * row[x];
    for (int i = 1; i <= t.radius; ++i)
        sum += t.w[i] * (row[clampi(x - i, W - 1)] + row[clampi(x + i, W - 1)]);
    out[y * W + x] = sum;
}

__global__ void blur_columns(const float* __restrict__ in, float* __restrict__ out,
                             const __grid_constant__ Taps t) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = t.w[0] * in[y * W + x];
    for (int i = 1; i <= t.radius; ++i)
        sum += t.w[i] * (in[clampi(y - i, H - 1) * W + x] + in[clampi(y + i, H - 1) * W + x]);
    out[y * W + x] = sum;
}

__global__ void hessian(const float* __restrict__ in, float* __restrict__ xx,
                        float* __restrict__ xy, float* __restrict__ yy, float scale) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int l = clampi(x - 1, W - 1), r = clampi(x + 1, W - 1);
    int u = clampi(y - 1, H - 1) * W, d = clampi(y + 1, H - 1) * W, at = y * W + x;
    float centre = in[at];
    xx[at] = scale * (in[y * W + l] - 2 * centre + in[y * W + r]);
    yy[at] = scale * (in[u + x] - 2 * centre + in[d + x]);
    xy[at] = scale * 0.25f * (in[u + l] - in[u + r] - in[d + l] + in[d + r]);
}

__global__ void vesselness(const float* __restrict__ xx, const float* __restrict__ xy,
                           const float* __restrict__ yy, float* __restrict__ best, bool first) {
    int at = (blockIdx.y * blockDim.y + threadIdx.y) * W + blockIdx.x * blockDim.x + threadIdx.x;
    float half = 0.5f * (xx[at] + yy[at]), diff = 0.5f * (xx[at] - yy[at]);
    float root = sqrtf(diff * diff + xy[at] * xy[at]);
    float big = half + root, small = half - root;
    if (fabsf(big) < fabsf(small)) { float s = big; big = small; small = s; }
    float ratio = small / (fabsf(big) + 1e-6f), strength = big * big + small * small;
    float v = big > 0 ? __expf(-2.0f * ratio * ratio) * (1.0f - __expf(-40.0f * strength)) : 0.0f;
    best[at] = first ? v : fmaxf(best[at], v);
}

void smooth(const Image& in, Image& out, Image& rows, float sigma) {
    Taps taps = gaussian(sigma);
    blur_rows<<<kGrid, kBlock>>>(in.get(), rows.get(), taps);
    blur_columns<<<kGrid, kBlock>>>(rows.get(), out.get(), taps);
}

void add_scale(const Image& photo, Image& best, Scratch& s, float sigma, bool first) {
    smooth(photo, s.smoothed, s.rows, sigma);
    hessian<<<kGrid, kBlock>>>(s.smoothed.get(), s.xx.get(), s.xy.get(), s.yy.get(), sigma * sigma);
    vesselness<<<kGrid, kBlock>>>(s.xx.get(), s.xy.get(), s.yy.get(), best.get(), first);
}

void enhance(const Image& photo, Image& best, Scratch& scratch) {
    const float sigmas[] = {1.5f, 2.5f, 4.0f, 6.0f};
    for (int s = 0; s < 4; ++s) add_scale(photo, best, scratch, sigmas[s], s == 0);
}

int main() {
    std::vector<float> host(size_t(W) * H);
    unsigned state = 77;
    for (int y = 0; y < H; ++y)
        for (int x = 0; x < W; ++x) {
            state = state * 1664525u + 1013904223u;
            float vessels = std::exp(-0.02f * std::pow(float((x + y / 3) % 160) - 80.0f, 2.0f));
            host[size_t(y) * W + x] = 0.7f - 0.4f * vessels + 0.05f * float(state >> 8) / 16777216.0f;
        }
    Image photo, best;
    Scratch scratch;
    check(cudaMemcpy(photo.get(), host.data(), host.size() * sizeof(float),
                     cudaMemcpyHostToDevice), "upload");

    int steps = 0;
    auto block = [&](int n) {
        check(cudaDeviceSynchronize(), "sync");
        auto t0 = std::chrono::steady_clock::now();
        for (int i = 0; i < n; ++i, ++steps) enhance(photo, best, scratch);
        check(cudaDeviceSynchronize(), "sync");
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t0).count() / n;
    };
    block(8);
    std::vector<double> us;
    for (int i = 0; i < 9; ++i) us.push_back(block(6));
    std::sort(us.begin(), us.end());

    check(cudaMemcpy(host.data(), best.get(), host.size() * sizeof(float),
                     cudaMemcpyDeviceToHost), "download");
    double mean = 0, square = 0;
    for (float v : host) { mean += v; square += double(v) * v; }
    std::printf("{\"program\": \"cuda_retina\", \"steps\": %d, \"us\": %.2f, \"result\": [%.7g, %.7g]}\n",
                steps, us[us.size() / 2], mean / host.size(), std::sqrt(square / host.size()));
    return 0;
}
