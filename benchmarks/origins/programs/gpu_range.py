"""The profiled range of a Python program. What a library launches outside of it is left out.

It calls the driver, so that it works with every framework. ncu needs --profile-from-start off.
"""

import contextlib
import ctypes


@contextlib.contextmanager
def gpu_range():
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    driver.cuCtxSynchronize()
    driver.cuProfilerStart()
    try:
        yield
    finally:
        driver.cuCtxSynchronize()
        driver.cuProfilerStop()
