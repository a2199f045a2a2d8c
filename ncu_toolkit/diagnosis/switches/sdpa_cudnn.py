"""cuDNN's attention behind scaled_dot_product_attention, on Hopper and newer often faster than the
FlashAttention 2 that PyTorch prefers. Shapes and masks that cuDNN does not take go on as before.

Source: PyTorch documentation, torch.nn.attention.sdpa_kernel; cuDNN documentation, "Attention"."""

from typing import Any

TITLE = "cuDNN's attention first"
CLASSES = ("attention",)
LEAST_CC = (8, 0)
NEEDS = "call of scaled_dot_product_attention"
DIFFERS = "Sums of the softmax are rounded in another order."
TOLERANCE = 1e-2
KEEP = {
    "torch": "with torch.nn.attention.sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):"
}


def hook(torch: Any, thrown: Any) -> None:
    backend = torch._C._SDPBackend if hasattr(torch._C, "_SDPBackend") else None
    if backend is None or not hasattr(torch._C, "_set_sdp_priority_order"):
        thrown.cannot("this PyTorch has no order of attention backends")
        return
    torch.backends.cuda.enable_cudnn_sdp(True)
    names = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    torch._C._set_sdp_priority_order([int(getattr(backend, name)) for name in names])
    thrown.applied()


HOOKS = {"torch": hook}
