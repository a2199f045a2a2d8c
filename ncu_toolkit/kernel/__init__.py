"""The first product: ladders of kernels and reports of Nsight Compute, to an answer."""
