"""Warp on the GPU's default stream, quiet."""

import warp as wp

wp.config.quiet = True
wp.config.cuda_output = "cubin"  # a driver older than Warp's compiler does not know its PTX
wp.init()
_gpu = wp.get_device("cuda:0")
_gpu.make_current()  # Warp makes the context, and with it the streams, when it is first used
# CUDA events of other libraries on the default stream then see its launches
wp.set_stream(_gpu.null_stream, _gpu)

__all__ = ["wp"]
