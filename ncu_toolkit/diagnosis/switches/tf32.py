"""TF32 for FP32 products and convolutions: tensor cores multiply with 10 bits of mantissa, and add in
FP32. Solvers and differences of close numbers may need all 23 bits.

Source: PyTorch documentation, "CUDA semantics: TensorFloat-32"; cuBLAS and CuPy documentation,
NVIDIA_TF32_OVERRIDE and CUPY_TF32."""

from typing import Any

TITLE = "TF32 for FP32 products and convolutions"
CAUSES = ("fp32-matmul", "tensor-core-unused")
LEAST_CC = (8, 0)
NEEDS = "FP32 product of a library"
GROUP = "precision"
DIFFERS = "Products round their inputs to 10 bits of mantissa."
TOLERANCE = 1e-2
ENVIRONMENT = {
    "NVIDIA_TF32_OVERRIDE": "1",
    "JAX_DEFAULT_MATMUL_PRECISION": "tensorfloat32",
    "CUPY_TF32": "1",
}
KEEP = {
    "torch": 'torch.set_float32_matmul_precision("high")',
    "jax": 'jax.config.update("jax_default_matmul_precision", "tensorfloat32")',
    "cupy": "export CUPY_TF32=1",
    "": "cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH)",
}


def hook(torch: Any, thrown: Any) -> None:
    if torch.get_float32_matmul_precision() != "highest":
        thrown.cannot("the program allows TF32 already")
        return
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    thrown.applied()


HOOKS = {"torch": hook}
