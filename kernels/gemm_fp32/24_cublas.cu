/*+++
title = "cuBLAS SGEMM"
idea = """\
The library's single-precision product, with TF32 off: it picks a kernel for each size, split-K \
where the tiles are too few to fill the GPU. The ladder is compared with it."""
kind = "baseline"
+++*/

/*+++
library = "cublas"
minimum_cc = "8.0"

[source]
document = "GEMM worklog"
claim = "15.3 us at 128, 9.29 ms at 4096"
device = "RTX A6000"

[[expect.profile]]
says = "true FP32: the products run on the FMA pipe and not on tensor cores"
check = "executed('FFMA') >= M * N * K / 32 and executed('HMMA') == 0"
+++*/
