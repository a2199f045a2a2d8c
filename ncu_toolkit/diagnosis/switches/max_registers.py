"""A limit on registers of a thread, for all kernels of the file: more warps fit on an SM, and what
does not fit into registers goes to local memory.

Source: NVIDIA CUDA Compiler Driver, --maxrregcount."""

TITLE = "A limit on registers"
CAUSES = ("low-occupancy", "memory-latency")
NEEDS = "command that builds it"
GROUP = "max-registers"
DIFFERS = "Nothing."
TOLERANCE = 1e-6
VALUES = ("32", "64", "128")
BUILD = ("-maxrregcount={}",)
KEEP = {"": "nvcc -maxrregcount={}, or __launch_bounds__ at the kernel"}
