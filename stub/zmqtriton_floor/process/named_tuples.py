"""A NamedTuple that writes its constructor when it is first called.

Python's compiles each class, and each annotation of it, when the module is imported: of all that
wire.py has, a process uses a tenth. Instances are as those of Python's; annotations stay texts.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple
    from typing import Any, Iterable

    _Field = type(namedtuple("_Model", "field").field)

    _UNEXPECTED = TypeError if sys.version_info >= (3, 13) else ValueError

    class _Methods:
        """The methods that each class of rows gets."""

        @classmethod
        def _make(cls, iterable: Iterable[Any]) -> Any:
            """Make a row of these values. Raises TypeError unless there is one for each field."""
            result = tuple.__new__(cls, iterable)
            if len(result) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(result)}")
            return result

        def _replace(self, /, **values: Any) -> Any:
            """Return a copy with these values in the fields of these names."""
            result = self._make(map(values.pop, self._fields, self))
            if values:
                raise _UNEXPECTED(f"Got unexpected field names: {list(values)!r}")
            return result

        def _asdict(self) -> dict[str, Any]:
            """Return the values by field."""
            return dict(zip(self._fields, self))

        def __repr__(self) -> str:
            values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
            return f"{self.__class__.__name__}({values})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)  # so that it can be pickled

        __replace__ = _replace  # for copy.replace()

    _METHODS = {
        name: method
        for name, method in vars(_Methods).items()
        if name not in ("__module__", "__dict__", "__weakref__", "__doc__")
    }

    def _constructor(name: str, fields: tuple[str, ...], defaults: tuple[Any, ...]) -> Any:
        """Return the constructor of a tuple with these fields."""
        names = ", ".join(fields)
        values = f"({names}{',' if len(fields) == 1 else ''})"
        words = f"_cls, {names}" if fields else "_cls"
        make = eval(f"lambda {words}: _new(_cls, {values})", {"_new": tuple.__new__})
        make.__name__, make.__qualname__ = "__new__", f"{name}.__new__"
        make.__defaults__ = defaults
        return make

    class _Meta(type):
        def __new__(
            cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]
        ) -> type[Any]:
            """Return a subclass of tuple, which inherits nothing from NamedTuple."""
            if not bases:
                return super().__new__(cls, name, bases, namespace)
            fields = tuple(map(sys.intern, namespace.get("__annotations__", ())))
            defaults = {field: namespace[field] for field in fields if field in namespace}
            if list(defaults) != list(fields[len(fields) - len(defaults) :]):
                raise TypeError(f"{name}: a field without a default follows one with a default")

            def make(_cls: type[Any], *values: Any, **by_name: Any) -> Any:
                row.__new__ = staticmethod(_constructor(name, fields, tuple(defaults.values())))
                return row.__new__(_cls, *values, **by_name)

            row = type.__new__(
                type,
                name,
                (tuple,),
                {
                    **_METHODS,
                    "__annotations__": {},  # before CPython 3.10 a class without some has none
                    **namespace,
                    **{field: _Field(place, "") for place, field in enumerate(fields)},
                    **{"__slots__": (), "__new__": make, "__match_args__": fields},
                    **{"_fields": fields, "_field_defaults": defaults},
                },
            )
            return row

    class NamedTuple(metaclass=_Meta):
        """The base class to write in the declaration of a class of rows."""
