"""cuDNN times its algorithms for each convolution's shape and takes the fastest. Shapes that change
are timed again each time, which makes such programs slower.

Source: PyTorch documentation, "Performance Tuning Guide": enable cuDNN auto-tuner."""

from typing import Any

TITLE = "cuDNN's benchmark mode"
CLASSES = ("convolution",)
NEEDS = "convolution"
DIFFERS = "Other algorithms add in another order, and the choice can differ from run to run."
TOLERANCE = 1e-2
KEEP = {"torch": "torch.backends.cudnn.benchmark = True"}


def hook(torch: Any, thrown: Any) -> None:
    if torch.backends.cudnn.benchmark:
        thrown.cannot("the program uses the mode already")
        return
    torch.backends.cudnn.benchmark = True
    thrown.applied()


HOOKS = {"torch": hook}
