"""Memory of PyTorch's allocator in segments that grow: sizes that change from step to step leave no
holes, so that fewer calls go to the driver.

Source: PyTorch documentation, "CUDA semantics: Memory management"."""

TITLE = "Memory in segments that grow"
CAUSES = ("allocation-in-step",)
NEEDS = "memory of PyTorch's allocator"
GROUP = "allocator"
DIFFERS = "Nothing."
TOLERANCE = 0.0
ENVIRONMENT = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
KEEP = {"torch": "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"}
