"""Numba's CUDA target, and the constants that keep arithmetic in single precision."""

import numpy

if not hasattr(numpy, "row_stack"):  # numba-cuda still asks NumPy 2 for it
    numpy.row_stack = numpy.vstack

from numba import cuda

F32 = numpy.float32

__all__ = ["F32", "cuda"]
