"""What the switches of `ncu-toolkit try` change in a program's Python, once it has imported a module
(data/switches.toml). A function is called with the module and the means of switching.py (`Setting`).

The program's own Python, of any environment, runs this file: it imports the standard library alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

_HAVE_IT = ("Adam", "AdamW", "SGD", "Adagrad")
_MOST = 8


def _unless(name: str, **values: Any) -> Callable[[dict[str, Any]], bool]:
    """A change of arguments to `values`, unless the one of this name is set."""

    def change(arguments: dict[str, Any]) -> bool:
        if arguments.get(name):
            return False
        arguments.update(values)
        return True

    return change


def compile(torch: Any, setting: Any, **options: Any) -> None:
    def visit(module: Any) -> None:
        done = getattr(module, "_compiled_call_impl", None) is not None
        if not done and not hasattr(module, "_orig_mod"):
            module.compile(**options)
            setting.applied()

    setting.on_models(torch, visit)


def batch_size(torch: Any, setting: Any) -> None:
    def change(arguments: dict[str, Any]) -> bool:
        size = arguments.get("batch_size", 1)
        if not size or arguments.get("batch_sampler") is not None:
            return False
        arguments["batch_size"] = size * int(setting.value)
        return True

    setting.on_construction(torch.utils.data.DataLoader, change)


def bf16_autocast(torch: Any, setting: Any) -> None:
    def visit(module: Any) -> None:
        if not any(each.dtype == torch.float32 for each in module.parameters()):
            return
        if torch.is_autocast_enabled():
            setting.cannot("the program uses automatic mixed precision already")
            return
        forward = module.forward

        def cast(*arguments: Any, **named: Any) -> Any:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return forward(*arguments, **named)

        module.forward = cast
        setting.applied()

    setting.on_models(torch, visit)


def channels_last(torch: Any, setting: Any) -> None:
    def visit(module: Any) -> None:
        if not any(isinstance(each, torch.nn.Conv2d) for each in module.modules()):
            return
        module.to(memory_format=torch.channels_last)

        def turned(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.dim() == 4:
                return value.contiguous(memory_format=torch.channels_last)
            return value

        forward = module.forward
        module.forward = lambda *arguments, **named: forward(
            *map(turned, arguments), **{name: turned(value) for name, value in named.items()}
        )
        setting.applied()

    setting.on_models(torch, visit)


def cuda_graphs(torch: Any, setting: Any) -> None:
    compile(torch, setting, mode="reduce-overhead")


def cudnn_benchmark(torch: Any, setting: Any) -> None:
    if torch.backends.cudnn.benchmark:
        setting.cannot("the program uses the mode already")
        return
    torch.backends.cudnn.benchmark = True
    setting.applied()


def fused_optimizer(torch: Any, setting: Any) -> None:
    def change(arguments: dict[str, Any]) -> bool:
        if arguments.get("fused"):
            setting.cannot("the program's optimizer is fused already")
            return False
        arguments.update(fused=True, foreach=None)
        return True

    for name in _HAVE_IT:
        setting.on_construction(getattr(torch.optim, name), change, keep="params")


def loader_workers(torch: Any, setting: Any) -> None:
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        setting.cannot("there is one core")
        return
    change = _unless("num_workers", num_workers=min(_MOST, cores - 1), persistent_workers=True)
    setting.on_construction(torch.utils.data.DataLoader, change)


def numba_block(dispatcher: Any, setting: Any) -> None:
    kernels = dispatcher.CUDADispatcher
    configure = kernels.configure

    def call(self: Any, grid: Any, block: Any, *others: Any, **named: Any) -> Any:
        size = [*grid] if isinstance(grid, (tuple, list)) else [grid]
        threads = [*block] if isinstance(block, (tuple, list)) else [block]
        flat = all(each == 1 for each in (*size[1:], *threads[1:]))
        new = int(setting.value)
        if flat and threads[0] != new and setting.named(getattr(self, "__name__", "")):
            grid, block = max(1, -(-size[0] * threads[0] // new)), new
            setting.applied()
        return configure(self, grid, block, *others, **named)

    kernels.configure = call


def optimizer_foreach(torch: Any, setting: Any) -> None:
    def change(arguments: dict[str, Any]) -> bool:
        if arguments.get("foreach") is not False or arguments.get("fused"):
            return False
        arguments["foreach"] = True
        return True

    for name in ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta"):  # fmt: skip
        if hasattr(torch.optim, name):
            setting.on_construction(getattr(torch.optim, name), change, keep="params")


def pinned_copies(torch: Any, setting: Any) -> None:
    setting.on_construction(torch.utils.data.DataLoader, _unless("pin_memory", pin_memory=True))
    for name in ("cuda", "to"):
        _without_waiting(torch.Tensor, name)


def _without_waiting(tensor: Any, name: str) -> None:
    """Copies of pinned tensors to the GPU do not wait; the other way they have to."""
    copy = getattr(tensor, name)

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if not self.is_cuda and "non_blocking" not in named and self.is_pinned():
            where = arguments[0] if arguments else named.get("device", "cuda")
            plain = len(arguments) < 2 and (name == "cuda" or "cuda" in str(where))
            if plain and not hasattr(where, "is_cuda"):
                named["non_blocking"] = True
        return copy(self, *arguments, **named)

    setattr(tensor, name, call)


def sdpa_cudnn(torch: Any, setting: Any) -> None:
    backend = torch._C._SDPBackend if hasattr(torch._C, "_SDPBackend") else None
    if backend is None or not hasattr(torch._C, "_set_sdp_priority_order"):
        setting.cannot("this PyTorch has no order of attention backends")
        return
    torch.backends.cuda.enable_cudnn_sdp(True)
    names = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    torch._C._set_sdp_priority_order([int(getattr(backend, name)) for name in names])
    setting.applied()


def tf32(torch: Any, setting: Any) -> None:
    if torch.get_float32_matmul_precision() != "highest":
        setting.cannot("the program allows TF32 already")
        return
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    setting.applied()


def triton_stages(triton: Any, setting: Any) -> None:
    setting.on_launches(triton.runtime.jit.JITFunction, "num_stages")


def triton_warps(triton: Any, setting: Any) -> None:
    setting.on_launches(triton.runtime.jit.JITFunction, "num_warps")
