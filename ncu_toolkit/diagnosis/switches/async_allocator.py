"""CUDA's own allocator, ordered by streams, in place of PyTorch's: memory is given back and taken
without waiting for the GPU.

Source: PyTorch documentation, "CUDA semantics: Memory management"; CUDA C++ Programming Guide, "Stream
Ordered Memory Allocator"."""

TITLE = "CUDA's stream-ordered allocator"
CAUSES = ("allocation-in-step",)
NEEDS = "memory of PyTorch's allocator"
GROUP = "allocator"
DIFFERS = "Nothing."
TOLERANCE = 0.0
ENVIRONMENT = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
KEEP = {"torch": "export PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"}
