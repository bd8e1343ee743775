"""The public names of NVIDIA's PyTriton and how they are called, as a program that prints them.

In this folder: ../../../../.venv-pytriton/bin/python public_names.py > public_names.json
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
from typing import Any

#: Modules that scripts import from. All others of PyTriton's are its inside.
MODULES = (
    "client",
    "client.asyncio_utils",
    "client.auth",
    "client.client",
    "client.exceptions",
    "client.utils",
    "client.warnings",
    "constants",
    "decorators",
    "exceptions",
    "model_config",
    "model_config.common",
    "model_config.generator",
    "model_config.model_config",
    "model_config.parser",
    "model_config.tensor",
    "model_config.triton_model_config",
    "proxy.types",
    "triton",
)


def describe_module(package: str, name: str) -> dict[str, Any]:
    """Describe what it defines; if it is a package, also what it offers of its modules."""
    full_name = f"{package}.{name}"
    module = importlib.import_module(full_name)
    names = {}
    for key, value in vars(module).items():
        if key.startswith("_") or inspect.ismodule(value):
            continue
        home = str(getattr(value, "__module__", ""))
        is_offered = home.startswith(f"{full_name}.") and hasattr(module, "__path__")
        is_constant = name == "constants" and isinstance(value, (int, str))
        if home == full_name or is_offered or is_constant:
            names[key] = describe(value)
    return names


def describe(value: Any) -> Any:
    if inspect.isclass(value):
        return describe_class(value)
    if callable(value):
        return describe_parameters(value)
    return repr(value)


def describe_class(kind: type) -> Any:
    if issubclass(kind, enum.Enum):
        return [f"{member.name} = {member.value!r}" for member in kind]
    package = kind.__module__.partition(".")[0]
    own = [base for base in reversed(kind.__mro__) if base.__module__.startswith(package)]
    members = {name: member for base in own for name, member in vars(base).items()}
    return {
        "()": describe_parameters(kind),
        **{
            name: describe_member(member)
            for name, member in members.items()
            if not name.startswith("_")
        },
    }


def describe_member(member: Any) -> Any:
    if isinstance(member, property):
        return "property"
    if isinstance(member, (staticmethod, classmethod)):
        return describe_parameters(member.__func__)
    return describe_parameters(member) if callable(member) else "attribute"


def describe_parameters(function: Any) -> Any:
    """Parameters without their annotations, as a definition writes them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return "unknown"
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return [
        f"{p} (by name)" if p.kind is p.KEYWORD_ONLY else str(p)
        for p in plain
        if p.name not in ("self", "cls")
    ]


def main() -> None:
    names = {module: describe_module("pytriton", module) for module in MODULES}
    print(json.dumps(names, indent=1, sort_keys=True))  # noqa: T201


if __name__ == "__main__":
    main()
