/*+++
title = "cuBLAS"
idea = """\
The library's 16-bit matrix product with fp32 accumulation, also of parts where it splits K, by \
whichever kernel it picks for the size. It is timed in turns with every rung, on the same data and \
the same row-major B."""
kind = "baseline"
+++*/

/*+++
library = "cublas"
minimum_cc = "8.0"

[source]
document = "cuBLAS, cublasGemmEx"
+++*/
