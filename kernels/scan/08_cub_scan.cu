/*+++
title = "CUB"
idea = """\
cub::DeviceScan::InclusiveSum as compiled into CuPy, called directly on the output with its \
workspace allocated beforehand. CUB looks back too; a small launch before it clears the words in \
which its tiles publish."""
kind = "baseline"
+++*/

/*+++
minimum_cc = "8.0"
library = "cub_scan"

[source]
document = "NVIDIA CUB, DeviceScan"
+++*/
