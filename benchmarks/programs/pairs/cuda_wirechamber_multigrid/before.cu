// Space-charge potential of a drift chamber: Poisson's equation on a square grid by
// geometric multigrid, solved again at each time step as the ion cloud moves.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e_ = (call);                                                 \
        if (e_ != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,               \
                         cudaGetErrorString(e_));                                \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

constexpr int N = 1025;                 // points along a side, walls included
constexpr int COARSEST = 17;
constexpr int CYCLES = 3;
constexpr int WARMUP = 5, BLOCKS = 6, PER_BLOCK = 5;

// Square grid of potentials or charges in device memory.
class Field {
public:
    explicit Field(int n) : n_(n) { CHECK(cudaMalloc(&data_, bytes())); }
    ~Field() { cudaFree(data_); }
    Field(const Field &) = delete;
    Field &operator=(const Field &) = delete;
    void zero() { CHECK(cudaMemsetAsync(data_, 0, bytes())); }
    int side() const { return n_; }
    size_t bytes() const { return size_t(n_) * n_ * sizeof(float); }
    float *get() { return data_; }
    const float *get() const { return data_; }

private:
    int n_;
    float *data_ = nullptr;
};

static dim3 threads() { return dim3(32, 8); }
static dim3 cover(int n) { return dim3((n + 31) / 32, (n + 7) / 8); }

__global__ void relax(float *u, const float *f, int n, float h2, int colour)
{
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    const int x = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + ((y + colour) & 1);
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    const int i = y * n + x;
    u[i] = 0.25f * (u[i - 1] + u[i + 1] + u[i - n] + u[i + n] + h2 * f[i]);
}

__global__ void defect(const float *u, const float *f, float *r, int n, float inv_h2)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    const int i = y * n + x;
    const bool wall = x == 0 || y == 0 || x == n - 1 || y == n - 1;
    r[i] = wall ? 0.0f : f[i] - inv_h2 * (4.0f * u[i] - u[i - 1] - u[i + 1] - u[i - n] - u[i + n]);
}

__global__ void restrict_full(const float *fine, float *coarse, int nc)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nc || y >= nc) return;
    const int n = 2 * nc - 1, i = 2 * y * n + 2 * x;
    float v = 0.0f;
    if (x > 0 && y > 0 && x < nc - 1 && y < nc - 1)
        v = 0.25f * fine[i] + 0.125f * (fine[i - 1] + fine[i + 1] + fine[i - n] + fine[i + n])
          + 0.0625f * (fine[i - n - 1] + fine[i - n + 1] + fine[i + n - 1] + fine[i + n + 1]);
    coarse[y * nc + x] = v;
}

__global__ void prolong_add(const float *coarse, float *u, int n)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    const int nc = (n + 1) / 2, x0 = x / 2, y0 = y / 2, x1 = (x + 1) / 2, y1 = (y + 1) / 2;
    u[y * n + x] += 0.25f * (coarse[y0 * nc + x0] + coarse[y0 * nc + x1]
                           + coarse[y1 * nc + x0] + coarse[y1 * nc + x1]);
}

__global__ void ion_cloud(float *rho, int n, float cx, float cy)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    const float dx = float(x) / (n - 1) - cx, dy = float(y) / (n - 1) - cy;
    rho[y * n + x] = 100.0f * __expf(-200.0f * (dx * dx + dy * dy));
}

static void smooth(Field &u, const Field &f, int sweeps)
{
    const int n = u.side();
    const float h = 1.0f / (n - 1);
    const dim3 grid((n / 2 + 32) / 32, (n + 7) / 8);
    for (int s = 0; s < sweeps; ++s)
        for (int colour = 0; colour < 2; ++colour)
            relax<<<grid, threads()>>>(u.get(), f.get(), n, h * h, colour);
}

static void v_cycle(Field &u, const Field &f)
{
    const int n = u.side();
    if (n <= COARSEST) {
        smooth(u, f, 12);
        return;
    }
    smooth(u, f, 2);
    Field r(n);
    defect<<<cover(n), threads()>>>(u.get(), f.get(), r.get(), n, float(n - 1) * (n - 1));
    const int nc = (n + 1) / 2;
    Field rc(nc), ec(nc);
    restrict_full<<<cover(nc), threads()>>>(r.get(), rc.get(), nc);
    ec.zero();
    v_cycle(ec, rc);
    prolong_add<<<cover(n), threads()>>>(ec.get(), u.get(), n);
    smooth(u, f, 2);
}

int main()
{
    Field phi(N), rho(N);
    phi.zero();
    int step = 0;
    auto advance = [&]() {
        const float a = 0.05f * step;
        ion_cloud<<<cover(N), threads()>>>(rho.get(), N, 0.5f + 0.2f * std::cos(a), 0.5f + 0.2f * std::sin(a));
        for (int c = 0; c < CYCLES; ++c) v_cycle(phi, rho);
        CHECK(cudaGetLastError());
        ++step;
    };

    for (int i = 0; i < WARMUP; ++i) advance();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        const auto t0 = std::chrono::steady_clock::now();
        for (int i = 0; i < PER_BLOCK; ++i) advance();
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> dt = std::chrono::steady_clock::now() - t0;
        times.push_back(dt.count() / PER_BLOCK);
    }
    std::sort(times.begin(), times.end());

    std::vector<float> host(size_t(N) * N);
    CHECK(cudaMemcpy(host.data(), phi.get(), phi.bytes(), cudaMemcpyDeviceToHost));
    double mean = 0.0;
    for (float v : host) mean += v;
    std::printf("{\"program\": \"cuda_wirechamber_multigrid\", \"steps\": %d, \"us\": %.1f, \"result\": [%.7g, %.7g]}\n",
                step, times[times.size() / 2], mean / host.size(), host[size_t(N / 2) * N + N / 2]);
    return 0;
}
