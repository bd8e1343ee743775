"""Says whether the installed PyTorch has kernels for a GPU, before CUDA refuses the first one.

Not run on a GPU yet.
"""

from __future__ import annotations

from typing import Any, Tuple


def missing(torch: Any, device: int) -> str:
    """Return why this PyTorch cannot compute on the GPU; "" if it can, or has no CUDA at all."""
    built = torch.cuda.get_arch_list()
    capability = torch.cuda.get_device_capability(device) if built else (0, 0)
    if not built or any(_runs(each, capability) for each in built):
        return ""
    return (
        f"torch {torch.__version__} has no kernels for GPU {device} "
        f"(sm_{capability[0]}{capability[1]}), but for {', '.join(built)}; install a build for "
        "this GPU, see https://pytorch.org/get-started/locally"
    )


def _runs(architecture: str, capability: Tuple[int, int]) -> bool:
    """Return True for kernels of the same major version, and for code that the driver compiles."""
    kind, _, number = architecture.rstrip("af").partition("_")
    own = int(number[:-1]), int(number[-1])
    return own <= capability and (kind == "compute" or own[0] == capability[0])
