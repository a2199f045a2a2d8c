// NVTX ranges with odd texts: unicode, markup, separators, a very long one, an empty one, domains,
// nesting.
#include "check.cuh"
#include <nvtx3/nvToolsExt.h>
#include <string>

__global__ void step(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] * 1.5f + 0.25f;
}

static float* y;
static const int n = 1 << 18;

static void launch() {
    step<<<n / 256, 256>>>(y, n);
    finish();
}

static void within(const char* text) {
    nvtxRangePushA(text);
    launch();
    nvtxRangePop();
}

int main() {
    y = filled(n);
    within("forward pass");
    within("größe = π · r² ✓ 日本語 🚀");
    within("<script>alert('x')</script> & \"quoted\"");
    within("a/b\\c, [d]; {e: %s %d} | tab\there\nand a new line");
    within("");
    within(std::string(300, 'x').c_str());
    within("bytes that are no text: \xff\xfe\x80");
    nvtxRangePushA("outer");
    nvtxRangePushA("inner");
    within("innermost");
    nvtxRangePop();
    nvtxRangePop();
    nvtxDomainHandle_t domain = nvtxDomainCreateA("a domain/with slash@and at");
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.colorType = NVTX_COLOR_ARGB;
    event.color = 0xffff8800;
    event.category = 7;
    event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    event.payload.dValue = 2.5;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = "with payload";
    nvtxDomainRangePushEx(domain, &event);
    launch();
    nvtxDomainRangePop(domain);
    nvtxRangeId_t one = nvtxRangeStartA("started"), two = nvtxRangeStartA("started later");
    launch();
    nvtxRangeEnd(one);
    nvtxRangeEnd(two);
    launch();
    return 0;
}
