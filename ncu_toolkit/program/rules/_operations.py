"""What a kernel or a framework's operator computes, in a word: add, mul, exp, mean, softmax, ...

By names alone, of kernels of PyTorch, CuPy and XLA, and of PyTorch's operators. A name that says
nothing gives "". Rules of compositions (unfused attention, norm, GELU) read sequences of them."""

import re
from functools import lru_cache
from typing import Final

#: In the order in which they are tried; the word, and what a name of it holds.
_WORDS: Final = (
    ("fused", r"triton_(?:poi|red|per|tem|for)_fused|^(?:loop|input)_\w*fusion|elementwise_fused"),
    ("multi", r"multi_tensor_apply|fused_adam|FusedAdam|FusedOptimizer"),
    ("softmax backward", r"softmax\w*backward|Softmax\w*Backward|softmax_warp_backward|SoftMaxBackward"),
    ("softmax", r"softmax|SoftMax"),
    ("norm backward", r"(?i)(?:layer|batch|group|rms|instance)_?norm\w*(?:grad|backward|bw)|GammaBeta"),
    ("norm", r"(?i)(?:layer|batch|group|rms|instance)_?norm|_norm_kernel"),
    ("gelu", r"(?i)gelu"),
    ("dropout", r"(?i)dropout|masked_scale"),
    ("addcmul", r"(?i)addcmul"),
    ("addcdiv", r"(?i)addcdiv"),
    ("lerp", r"(?i)lerp"),
    ("rsqrt", r"(?i)rsqrt"),
    ("sqrt", r"(?i)sqrt"),
    ("tanh backward", r"(?i)tanh_backward"),
    ("tanh", r"(?i)tanh"),
    ("sigmoid", r"(?i)sigmoid|silu"),
    ("erf", r"(?i)\berf|_erf"),
    ("pow", r"(?i)pow_tensor|\bpow|_pow_|square"),
    ("exp", r"(?i)\bexp_kernel|cupy_exp|wrapped_exp|aten::exp\b"),
    ("log", r"(?i)\blog_kernel|cupy_log__|wrapped_log\b|aten::log\b"),
    ("where", r"(?i)where_kernel|masked_fill|cupy_where|wrapped_select|aten::where"),
    ("mean", r"MeanOps|(?i:cupy_mean|aten::mean\b)"),
    ("var", r"WelfordOps|(?i:cupy_var|aten::var\b|aten::std\b)"),
    ("max", r"Max(?:Nan)?(?:Functor|Ops)|ArgMax|(?i:cupy_a?max|aten::a?max\b)"),
    ("sum", r"sum_functor|\bSumOps|(?i:cupy_sum|aten::sum\b)"),
    ("copy", r"(?:direct|float16)_copy_kernel|CatArrayBatched|aten::(?:copy_|contiguous|clone|cat)\b|(?i:nchwtonhwc|nhwctonchw|transpose)"),
    ("random", r"distribution_(?:elementwise|nullary)|(?i:philox|curand)"),
    ("fill", r"FillFunctor|aten::(?:fill_|zero_)\b|cupy_fill"),
    ("gather", r"(?i)gather|index_select|indexSelect|indexing_backward|aten::index\b|aten::embedding"),
    ("div", r"DivFunctor|div_true_kernel|(?i:cupy_true_divide|wrapped_divide|aten::div)"),
    ("sub", r"(?i:cupy_subtract|wrapped_subtract|aten::r?sub\b)|_sub_kernel"),
    ("neg", r"(?i)neg_kernel|cupy_negative|wrapped_negate|aten::neg\b"),
    ("mul", r"MulFunctor|(?i:cupy_multiply|wrapped_multiply|aten::mul)"),
    ("add", r"CUDAFunctor(?:OnSelf|OnOther)?_add|AddFunctor|add_kernel|(?i:cupy_add|wrapped_add|aten::add_?\b)"),
    ("compare", r"CompareEq|CompareFunctor|(?i:cupy_(?:greater|less|equal))"),
)  # fmt: skip
_TRIED: Final = tuple((word, re.compile(pattern)) for word, pattern in _WORDS)


@lru_cache(maxsize=4096)
def of_kernel(name: str) -> str:
    """What a kernel of a framework computes; "" where its name does not say. Names of products
    and convolutions say nothing here (`program/traces/classes.py`)."""
    return next((word for word, pattern in _TRIED if pattern.search(name)), "")


@lru_cache(maxsize=4096)
def of_operator(name: str) -> str:
    """The same of a framework's operator, `aten::mul`."""
    return of_kernel(name.partition("(")[0].partition("[")[0])
