"""A callable with a decorator around it that is, to everybody who asks, still that callable.

A function of Python's could not be: whether calling it makes a generator or a coroutine, whose
attribute the context of the server becomes, and for which object a method is called, must be
answered by what is decorated. The names of the fields are those of wrapt, whose decorators users
write themselves and put between ours.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

#: Takes the callable, the object whose method it is, or None, and the arguments of one call.
Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]


class DecoratedCallable:
    # A docstring, or annotations, would be found in place of the callable's own.
    __slots__ = ("__weakref__", "__wrapped__", "_self_instance", "_self_wrapper")

    def __init__(self, wrapped: Any, wrapper: Wrapper, instance: Any = None) -> None:
        if instance is None:
            instance = getattr(wrapped, "__self__", None)
        for name, value in (
            ("__wrapped__", wrapped),
            ("_self_wrapper", wrapper),
            ("_self_instance", instance),
        ):
            object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._self_wrapper(self.__wrapped__, self._self_instance, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        wrapped = self.__wrapped__
        if not hasattr(type(wrapped), "__get__"):
            return self
        if instance is None and not isinstance(wrapped, (staticmethod, classmethod)):
            return _MethodOfClass(wrapped, self._self_wrapper)
        return DecoratedCallable(wrapped.__get__(instance, owner), self._self_wrapper)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.__wrapped__.__class__

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self.__wrapped__.__doc__

    @property
    def __module__(self) -> Any:  # type: ignore[override]
        return self.__wrapped__.__module__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__wrapped__, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __str__(self) -> str:
        return str(self.__wrapped__)

    def __eq__(self, other: object) -> bool:
        return bool(self.__wrapped__ == other)

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __reduce_ex__(self, protocol: Any) -> str:
        # pickled as functions are: by name
        return str(self.__wrapped__.__qualname__)


class _MethodOfClass(DecoratedCallable):
    # A method taken from its class: whoever calls it brings the object.
    __slots__ = ()

    def __call__(self, instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.__get__(instance, type(instance))(*args, **kwargs)


def layers(infer_func: Any) -> Iterator[Any]:
    """Return a callable and everything below it, down to the undecorated one."""
    layer = infer_func
    while layer is not None:
        yield layer
        layer = getattr(layer, "__wrapped__", None)


def convert_results(results: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert a returned value, or a value that will be yielded, or awaited."""
    if inspect.isgenerator(results):
        return (convert(result) for result in results)
    if inspect.iscoroutine(results):
        return _convert_awaited(results, convert)
    if inspect.isasyncgen(results):
        return _convert_each(results, convert)
    return convert(results)


async def _convert_awaited(results: Any, convert: Callable[[Any], Any]) -> Any:
    return convert(await results)


async def _convert_each(results: Any, convert: Callable[[Any], Any]) -> AsyncIterator[Any]:
    async for result in results:
        yield convert(result)
