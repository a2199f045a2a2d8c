/*+++
title = "CuPy: RGB to gray"
idea = """\
The same weighted sum over the three planes of the image as a CuPy elementwise kernel: one launch, \
one pixel per thread, strided byte accesses."""
kind = "baseline"
+++*/

/*+++
minimum_cc = "8.0"
library = "cupy_rgb_to_gray"

[problem]
op = "rgb_to_gray"

[source]
document = "CuPy, ElementwiseKernel"
+++*/
