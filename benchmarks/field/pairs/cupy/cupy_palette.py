"""A picture of 32 million palette indices turned into brightness."""

import cupy

from benchmarks.field import Launch, Pair, Work

COUNT = 1 << 25
CODE = r"""
__constant__ float fixed_palette[256];

extern "C" __global__ void paint_constant(const uchar4* in, float4* out, const float* palette) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  uchar4 p = in[i];
  out[i] = make_float4(fixed_palette[p.x], fixed_palette[p.y], fixed_palette[p.z],
                       fixed_palette[p.w]);
}

extern "C" __global__ void paint_shared(const uchar4* in, float4* out, const float* palette) {
  __shared__ float own[256];
  own[threadIdx.x] = palette[threadIdx.x];
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  uchar4 p = in[i];
  out[i] = make_float4(own[p.x], own[p.y], own[p.z], own[p.w]);
}
"""


def inputs():
    rng = cupy.random.default_rng(2)
    picture = (rng.random(COUNT, dtype="float32") * 256).astype("uint8")
    return picture, rng.random(256, dtype="float32")


def make(variant, picture, palette):
    module = cupy.RawModule(code=CODE)
    fixed = cupy.ndarray(256, "float32", module.get_global("fixed_palette"))
    fixed[...] = palette
    kernel = module.get_function("paint_constant" if variant == "before" else "paint_shared")
    out = cupy.empty(COUNT, "float32")
    return Work(
        lambda: kernel((COUNT // 1024,), (256,), (picture, out, palette)), lambda: out[::5].get()
    )


PAIR = Pair(inputs, make, Launch("paint_"), tolerance=1e-7)
