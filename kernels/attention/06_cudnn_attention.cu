/*+++
title = "cuDNN"
idea = """\
The library's fused attention, the kernel that its heuristics put first for the size. It is timed \
in turns with every rung, on the same data."""
kind = "baseline"
+++*/

/*+++
library = "cudnn"
minimum_cc = "8.0"

[source]
document = "cuDNN, scaled dot-product attention of the graph API"
+++*/
