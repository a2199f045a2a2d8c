"""ncu-toolkit: build a ladder of CUDA kernels, profile it with Nsight Compute, and explain each step's bottleneck."""

__version__ = "0.1.0"
