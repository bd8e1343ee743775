"""The start of a script's server, and the keeper of its models."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TritonLifecyclePolicy:
    #: False: not before `serve` or `run`.
    launch_triton_on_startup: bool = True
    #: True: models are written to the repository before the server starts, not loaded into it.
    local_model_store: bool = False


DefaultTritonLifecyclePolicy = TritonLifecyclePolicy()
VertextAILifecyclePolicy = TritonLifecyclePolicy(
    launch_triton_on_startup=False, local_model_store=True
)
