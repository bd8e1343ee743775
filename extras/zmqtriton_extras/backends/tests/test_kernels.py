"""Whether a build of PyTorch has kernels for a GPU, with builds and GPUs that are made up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from zmqtriton_extras.backends.pytorch.kernels import missing


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        (["sm_80", "sm_90"], (9, 0), True),
        (["sm_80"], (8, 6), True),
        (["sm_86"], (8, 0), False),
        (["sm_80", "sm_90"], (12, 0), False),
        (["sm_80", "compute_90"], (12, 0), True),
        (["sm_90a"], (9, 0), True),
        ([], (7, 0), True),
    ],
)
def test_kernels_for_a_gpu(built: list[str], capability: tuple[int, int], runs: bool) -> None:
    cuda = SimpleNamespace(
        get_arch_list=lambda: built, get_device_capability=lambda device: capability
    )

    why = missing(SimpleNamespace(cuda=cuda, __version__="2.5"), 1)

    sm = f"(sm_{capability[0]}{capability[1]}), but for {', '.join(built)}; install"
    assert why == "" if runs else f"torch 2.5 has no kernels for GPU 1 {sm}" in why
