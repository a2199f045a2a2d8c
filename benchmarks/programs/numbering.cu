// Launches with known numbers, to see what `ncu --kernel-id` counts: 40 rounds of five launches, each
// in an NVTX range "ROUND-PLACE". Two names, one of them with two grids, one with two instances.
#include <cstdio>
#include <nvtx3/nvToolsExt.h>

__global__ void first() {}
template <int N>
__global__ void second(int *at) {
  if (at) *at = N;
}

int main() {
  char text[32];
  for (int round = 1; round <= 40; round++)
    for (int place = 1; place <= 5; place++) {
      snprintf(text, sizeof text, "%d-%d", round, place);
      nvtxRangePushA(text);
      if (place == 1) first<<<1, 32>>>();
      if (place == 2) first<<<2, 32>>>();
      if (place == 3) second<0><<<1, 32>>>(nullptr);
      if (place == 4) second<1><<<1, 32>>>(nullptr);
      if (place == 5) first<<<1, 32>>>();
      cudaDeviceSynchronize();
      nvtxRangePop();
    }
  printf("done\n");
  return 0;
}
