"""nvcc's fast forms of functions (sine, exponential, division, root), with denormals taken as 0.

Source: NVIDIA CUDA Compiler Driver, --use_fast_math."""

TITLE = "Fast functions of single precision"
CAUSES = ("special-function-pressure", "instruction-throughput")
NEEDS = "command that builds it"
DIFFERS = "Functions are off by some units in the last places; denormals are 0."
TOLERANCE = 1e-3
BUILD = ("-use_fast_math",)
KEEP = {"": "nvcc -use_fast_math"}
