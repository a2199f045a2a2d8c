"""What kernels/ says: families, rungs, their headers and the problems they solve."""
