// Processes: family child (only the child launches) | family both | family siblings (two children).
// A child is a fresh process, forked and executed before the parent touches CUDA.
#include "check.cuh"
#include <sys/wait.h>
#include <unistd.h>

__global__ void child_work(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] * 2.f + 1.f;
}

__global__ void parent_work(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sqrtf(y[i]);
}

static pid_t spawn(const char* self, const char* role) {
    pid_t pid = fork();
    if (pid == 0) {
        execl(self, self, role, (char*)nullptr);
        _exit(3);
    }
    return pid;
}

int main(int argc, char** argv) {
    const char* role = argc > 1 ? argv[1] : "child";
    const int n = 1 << 20;
    if (!std::strncmp(role, "run", 3)) {
        float* y = filled(n);
        child_work<<<n / 256, 256>>>(y, n);
        child_work<<<n / 512, 256>>>(y, n / 2);
        finish();
        return 0;
    }
    pid_t first = spawn(argv[0], "run-first");
    pid_t second = !std::strcmp(role, "siblings") ? spawn(argv[0], "run-second") : 0;
    if (!std::strcmp(role, "both")) {
        float* y = filled(n);
        parent_work<<<n / 256, 256>>>(y, n);
        parent_work<<<n / 256, 256>>>(y, n);
        finish();
    }
    int status = 0, bad = 0;
    waitpid(first, &status, 0);
    bad |= status;
    if (second) waitpid(second, &status, 0), bad |= status;
    return bad ? 1 : 0;
}
