"""The context of a callable: the models that are bound, by what they are bound to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from zmqtriton.pytriton.constants import TRITON_CONTEXT_FIELD_NAME
from zmqtriton.pytriton.decorators.wrapping import DecoratedCallable, layers
from zmqtriton.pytriton.exceptions import PyTritonValidationError
from zmqtriton.pytriton.model_config.triton_model_config import TritonModelConfig

_ATTRIBUTE = "__triton_context__"
#: Keyword arguments that are not inputs.
SPECIAL_KEYS = (_ATTRIBUTE, TRITON_CONTEXT_FIELD_NAME)


class ModelConfigDict(MutableMapping[Callable[..., Any], TritonModelConfig]):
    """Configurations by callable; decorated or not, and however often a method is taken."""

    def __init__(self) -> None:
        self._configs: dict[tuple[int, ...], tuple[Callable[..., Any], TritonModelConfig]] = {}

    def __getitem__(self, infer_func: Callable[..., Any]) -> TritonModelConfig:
        try:
            return self._configs[_identity(infer_func)][1]
        except KeyError:
            raise KeyError(str(infer_func)) from None

    def __setitem__(self, infer_func: Callable[..., Any], config: TritonModelConfig) -> None:
        # kept with its callable, so that no other gets the same identity
        self._configs[_identity(infer_func)] = (infer_func, config)

    def __delitem__(self, infer_func: Callable[..., Any]) -> None:
        del self._configs[_identity(infer_func)]

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return (infer_func for infer_func, _ in self._configs.values())


def _identity(infer_func: Any) -> tuple[int, ...]:
    """Identify a callable below its decorators; an object and its `__call__` are the same."""
    if inspect.ismethod(infer_func):
        if infer_func.__name__ == "__call__":
            return (id(infer_func.__self__),)
        return (id(infer_func.__self__), id(_undecorated(infer_func.__func__)))
    return (id(_undecorated(infer_func)),)


def _undecorated(infer_func: Any) -> Any:
    *_, lowest = layers(infer_func)
    return lowest


@dataclass
class TritonContext:
    """The models of one server that are bound in this process."""

    model_configs: ModelConfigDict = field(default_factory=ModelConfigDict)


def set_triton_context(
    context: TritonContext, infer_func: Callable[..., Any], model_config: TritonModelConfig
) -> None:
    """Let the callable's decorators find the context, and its model in it."""
    context.model_configs[infer_func] = model_config
    for layer in layers(infer_func):
        owner = getattr(layer, "__self__", layer)
        try:
            setattr(owner, _ATTRIBUTE, context)
        except (AttributeError, TypeError):
            # it has no room for attributes; if its decorators ask, they are told
            return


def get_triton_context(wrapped: Any, instance: Any) -> TritonContext:
    """Return the context of a callable, or of the object whose method it is.

    For decorators of the user's own. Raises PyTritonValidationError for one that is not bound.
    """
    caller = wrapped if instance is None else instance
    context: TritonContext | None = getattr(caller, _ATTRIBUTE, None)
    if context is None:
        raise PyTritonValidationError(
            "Wrapped function or object must bound with triton to get  __triton_context__"
        )
    return context


def get_model_config(wrapped: Any, instance: Any) -> TritonModelConfig:
    """Return the configuration of the model that a callable is bound to."""
    return get_triton_context(wrapped, instance).model_configs[wrapped]


def triton_context(infer_func: Callable[..., Any]) -> Any:
    """Pass the TritonContext on as the keyword argument `triton_context`."""
    return DecoratedCallable(infer_func, _with_context)


def _with_context(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    context = get_triton_context(wrapped, instance)
    return wrapped(*args, **{**kwargs, TRITON_CONTEXT_FIELD_NAME: context})
