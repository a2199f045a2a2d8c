/*+++
title = "CUB"
idea = """\
cub::DeviceReduce::Sum as compiled into CuPy, called directly on the output with its workspace \
allocated beforehand. CUB reads 16 elements per thread in 16-byte loads, five waves of blocks, and \
adds up the partial sums in a second launch."""
kind = "baseline"
+++*/

/*+++
minimum_cc = "8.0"
library = "cub"

[source]
document = "NVIDIA CUB, DeviceReduce"
+++*/
