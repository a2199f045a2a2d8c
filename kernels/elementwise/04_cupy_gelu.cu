/*+++
title = "CuPy: fused GELU"
idea = """\
The same expression as a CuPy elementwise kernel, which is what a user of an array library gets \
from fusing: one launch, one element per thread, compiled by the library."""
kind = "baseline"
+++*/

/*+++
minimum_cc = "8.0"
library = "cupy_gelu"

[problem]
op = "gelu"

[source]
document = "CuPy, ElementwiseKernel"
+++*/
