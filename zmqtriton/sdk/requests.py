"""Requests in a frontend, whatever their protocol: what a step gets, and may change or refuse."""

from zmqtriton_frontends.entrance.ask import Ask, Choice, Content, Division, Step
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.model_version import ModelVersion

__all__ = [
    "Ask",
    "CheckedRequest",
    "Choice",
    "Content",
    "Division",
    "Gateway",
    "ModelVersion",
    "Step",
]
