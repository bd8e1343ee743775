"""The page on pb_utils: its public names with their signatures and docstrings, and models."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.reference.markdown import block, code, heading, table
from zmqtriton_stub.api import inference, metrics, pb_utils

MODELS = Path(__file__).with_name("models")
_ABOUT = """\
`import triton_python_backend_utils as pb_utils` in a `model.py`: what a model finds there, with
Triton's names and types. Nothing need be installed for it; in tests of models,
[zmqtriton.testing](../guides/testing.md) brings it. What Triton's API does not have says so."""
#: Each with what is special about it; a test asks each of them.
_EXAMPLES = {
    "tensors": "Inputs, outputs, parameters and an error",
    "stream": "A decoupled model: any number of responses to a request",
    "calls": "A model that calls another one",
    "metrics": "Metrics and log lines",
    "completion": "A model without a configuration",
}
#: Models get these from others, and make none.
_GOT = ("InferenceResponseSender", "MetricFamily.Metric", "ModelConfig", "ResponseIterator")
_METHODS = """\
A model is a class `TritonPythonModel`. The server calls these methods, of which only `execute` has
to be there:"""
_MODEL = {
    "auto_complete_config(config)": "Static. Gets and returns a [ModelConfig](#modelconfig).",
    "initialize(self, args)": "Once in each instance. `args` is a dict of texts: `model_config` as "
    "JSON, `model_name`, `model_version`, `model_repository`, `model_instance_name`, "
    "`model_instance_kind` and `model_instance_device_id`.",
    "execute(self, requests)": "Gets a list of [InferenceRequest](#inferencerequest) and returns "
    "an [InferenceResponse](#inferenceresponse) for each. A decoupled model returns None and sends "
    "responses itself. May be `async`.",
    "finalize(self)": "Before the instance ends.",
    "is_ready(self)": "Asked by clients' readiness probes, if it is there.",
}


def page() -> Iterator[str]:
    yield from heading("pb_utils", _ABOUT, "the docstrings of stub/zmqtriton_stub/api")
    yield from ("## The model", "", _METHODS, "")
    yield from table(("Method", "Meaning"), [(code(name), about) for name, about in _MODEL.items()])
    yield from ("## Examples", "")
    for name, title in _EXAMPLES.items():
        yield from (f"### {title}", "")
        yield from block((MODELS / f"{name}.py").read_text("utf-8"), "python")
    public = {name: getattr(pb_utils, name) for name in pb_utils.__all__}
    public["MetricFamily.Metric"] = metrics.Metric
    classes = {name: cls for name, cls in public.items() if inspect.isclass(cls)}
    yield from ("## Classes", "")
    for name, cls in sorted(classes.items()):
        yield from _class(name, cls)
    yield from ("## Functions", "")
    functions = [function for function in public.values() if inspect.isfunction(function)]
    yield from table(("Call", "Meaning"), map(_row, functions))
    yield from ("## Constants", "")
    others = {name: public[name] for name in public.keys() - classes.keys()}
    constants = [(code(n), code(_value(v))) for n, v in sorted(others.items()) if not callable(v)]
    yield from table(("Name", "Value"), constants)


def _class(name: str, cls: Any) -> Iterator[str]:
    yield from (f"### {name}", "")
    made = inference._Arguments if cls is inference.InferenceRequest else cls
    if "__init__" in vars(cls) and name not in _GOT:
        shown = "".join(f"    {one},\n" for one in _arguments(inspect.signature(made)))
        yield from block(f"{name}(\n{shown})", "python")
    yield from ((inspect.getdoc(cls) or ""), "")
    members = {
        key: inspect.unwrap(getattr(value, "__func__", value))
        for key, value in vars(cls).items()
        if not key.startswith("_")
    }
    constants = [key for key, value in members.items() if isinstance(value, enum.Enum)]
    if constants:
        yield from (f"Constants: {', '.join(code(f'{name}.{key}') for key in constants)}.", "")
    methods = [_row(value) for value in members.values() if inspect.isfunction(value)]
    if methods:
        yield from table(("Call", "Meaning"), methods)


def _row(function: Any) -> tuple[str, str]:
    about = inspect.getdoc(function)
    assert about, f"{function.__qualname__} has no docstring"
    return code(function.__name__ + _signature(function)), about


def _signature(function: Any) -> str:
    """Return arguments and result, without `self` and without the type Any."""
    signature = inspect.signature(function)
    result = _type(signature.return_annotation)
    arguments = ", ".join(_arguments(signature))
    return f"({arguments})" + (f" -> {result}" if result not in ("", "None") else "")


def _arguments(signature: inspect.Signature) -> list[str]:
    return [_argument(one) for name, one in signature.parameters.items() if name != "self"]


def _argument(parameter: inspect.Parameter) -> str:
    kind, default = _type(parameter.annotation), parameter.default
    text = parameter.name + (f": {kind}" if kind else "")
    if default in (inspect.Parameter.empty, inference._MISSING):
        return text
    shown = default.name if isinstance(default, enum.Enum) else repr(default)
    return f"{text} = {shown}" if kind else f"{text}={shown}"


def _type(annotation: Any) -> str:
    """Return an annotation, which is a text; "" for none, and for Any."""
    text = getattr(annotation, "__forward_arg__", annotation)
    return text if isinstance(text, str) and text != "Any" else ""


def _value(value: Any) -> str:
    return str(value) if isinstance(value, enum.Enum | int) else type(value).__name__
