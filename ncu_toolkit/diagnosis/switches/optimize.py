"""Optimization of the GPU's code (-Xptxas -O3) and the host's, for builds that turned it off.

Source: NVIDIA CUDA Compiler Driver, --optimize and --device-debug."""

TITLE = "Optimized code"
CAUSES = ("debug-build",)
NEEDS = "command that builds it"
DIFFERS = "Multiplications and additions are fused, and sums may be rounded in another order."
TOLERANCE = 1e-4
BUILD = ("-O3",)
KEEP = {"": "nvcc -O3, without -G"}
