"""Runs a function of a file as a model: the function with the model's name, or the only one."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import types
from typing import Any, AsyncIterator, Dict, List, Optional, Tuple

import triton_python_backend_utils as pb_utils

from zmqtriton_extras.functions.backend import api, calls, signature
from zmqtriton_extras.functions.backend.keeping import kept_names
from zmqtriton_extras.functions.backend.kinds import HintError
from zmqtriton_extras.functions.backend.streams import StreamLoop, Work

#: Imported modules by path, each with its file's time of change; 0 if that no longer matters.
_imported: Dict[str, Tuple[int, Any]] = {}


class FunctionWork(Work):
    """Runs a class with `admit` and `step`, which take and return values instead of requests."""

    def __init__(self, model: Any, signature: signature.Signature) -> None:
        super().__init__(model, signature.settings.streams, signature.settings.budget)
        self._signature = signature
        #: Defaults of `admit`, which `cost` gets as well.
        self._defaults = signature.defaults

    def read(self, request: Any) -> Any:
        tensors = calls.tensors_of(request)
        return {**self._defaults, **calls.arguments(self._signature, request, tensors)}

    def cost(self, arguments: Any) -> float:
        return float(self._model.cost(**arguments))

    def admit(self, arguments: Any) -> Any:
        try:
            return self._model.admit(**arguments)
        except Exception as error:  # noqa: BLE001 - raised again, or the reason of it
            raise calls.blamed(error, arguments) from None

    def response(self, value: Any) -> Any:
        return calls.response(self._signature, value)


class FunctionModel:
    """Runs a function with a complete configuration, such as an exported one."""

    #: Path of the file with the function; "" if the configuration names it.
    file = ""
    #: The object of a class that was made before this process was forked; None without one.
    made: Any = None
    #: The thread that runs streams; None for other models.
    _loop: Optional[StreamLoop] = None

    def initialize(self, args: Dict[str, str]) -> None:
        marked, self._signature = _find(json.loads(args["model_config"]), self.file)
        self._function = self.made
        if self.made is None:
            self._function = marked() if isinstance(marked, type) else marked
        settings = self._signature.settings
        # without coroutines of its own a function needs no event loop
        self.execute: Any = self._execute
        if not self._signature.is_async:
            is_plain = not (settings.batch or self._signature.is_stream)
            self.execute = self._answer_each if is_plain else self._execute_now
        if settings.streams:
            self._loop = StreamLoop(FunctionWork(self._function, self._signature), args)
            vars(self).update(self._loop.calls())

    def finalize(self) -> None:
        if self._loop is not None:
            self._loop.close()

    def _execute_now(self, requests: List[Any]) -> Any:
        try:
            self._execute(requests).send(None)
        except StopIteration as end:
            return end.value
        raise RuntimeError("a function that is no coroutine has waited")

    async def _execute(self, requests: List[Any]) -> Any:
        signature, overlap = self._signature, self._signature.is_async
        if signature.settings.batch:
            return await calls.Batch(signature, requests).run(self._function)
        if signature.is_stream:
            await calls.each_of([*map(self._send, requests)], overlap=overlap)
            return None
        return await calls.each_of([*map(self._answer, requests)], overlap=overlap)

    def _answer_each(self, requests: List[Any]) -> List[Any]:
        responses = []
        for request in requests:
            values: calls.Values = {}
            try:
                values = calls.arguments(self._signature, request, calls.tensors_of(request))
                responses.append(calls.response(self._signature, self._function(**values)))
            except Exception as error:  # noqa: BLE001 - the requester is told of it
                responses.append(calls.failure(calls.blamed(error, values)))
        return responses

    async def _answer(self, request: Any) -> Any:
        values: calls.Values = {}
        try:
            values = calls.arguments(self._signature, request, calls.tensors_of(request))
            return calls.response(self._signature, await self._function(**values))
        except Exception as error:  # noqa: BLE001 - the requester is told what the function raises
            return calls.failure(calls.blamed(error, values))

    async def _send(self, request: Any) -> None:
        sender, values = request.get_response_sender(), {}
        try:
            values = calls.arguments(self._signature, request, calls.tensors_of(request))
            answers = self._function(**values)
            stream: Any = answers if self._signature.is_async else _iterate(answers)
            async for answer in stream:
                if sender.is_cancelled():
                    await stream.aclose()
                    break
                sender.send(calls.response(self._signature, answer))
        except Exception as error:  # noqa: BLE001 - the requester is told what the function raises
            sender.send(calls.failure(calls.blamed(error, values)))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


class TritonPythonModel(FunctionModel):
    @classmethod
    def auto_complete_config(cls, config: Any) -> Any:
        marked, interface = _find(config.as_dict(), cls.file)
        try:
            return signature.complete(config, interface)
        except HintError as error:
            path = cls.file or path_of(config.as_dict())
            raise pb_utils.TritonModelException(f"{path}, {marked.__name__}: {error}") from None
        except ValueError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    @classmethod
    def preload_starts(cls, args: Dict[str, str]) -> List[Tuple[str, str, str]]:
        """Import the model's file; return its names whose values are made once for all instances.

        The stub calls this before `preload`, and again when the file has changed.
        """
        config = json.loads(args["model_config"])
        module = pinned(cls.file or path_of(config))
        cls._marked, _ = _find(config, cls.file)
        starts = [(module.__name__, name, "") for name in kept_names(module)]
        # threads would share the object, where each fork has a copy
        instances = config.get("parameters", {}).get("INSTANCES", {}).get("string_value", "")
        is_class = isinstance(cls._marked, type) and instances != "threads"
        cls._makes_object = is_class and getattr(cls._marked, api.MARK).keeps is not False
        if cls._makes_object:
            starts.append((module.__name__, cls._marked.__qualname__, "__init__"))
        return starts

    @classmethod
    def preload(cls, args: Dict[str, str]) -> None:
        if cls._makes_object:
            cls.made = cls._marked()

    @classmethod
    def take_preloaded(cls) -> None:
        """Give the object that `preload` has made the class of the changed file."""
        if cls.made is not None:
            cls.made.__class__ = cls._marked

    #: The function or class, once its file was imported for all instances.
    _marked: Any = None
    #: True if one object of the class is made for all instances.
    _makes_object = False


async def _iterate(answers: Any) -> AsyncIterator[Any]:
    """Iterate over a generator as an async iterator, and close it at the end."""
    try:
        for answer in answers:
            yield answer
    finally:
        if hasattr(answers, "close"):
            answers.close()


# ------------------------------------------------------------------ the file


def _find(config: Dict[str, Any], file: str) -> Tuple[Any, signature.Signature]:
    """Find a model's function or class in its file, and return it with its signature."""
    path = file or path_of(config)
    functions = list(dict.fromkeys(signature.functions_of(import_file(path))))
    by_name = {getattr(each, api.MARK).name: each for each in functions}
    name = config["name"]
    marked = by_name.get(name) or (functions[0] if len(functions) == 1 else None)
    if marked is None:
        names = ", ".join(sorted(by_name)) or "none"
        text = f"{path} has no @model with the name '{name}', its models are: {names}"
        raise pb_utils.TritonModelException(text)
    try:
        return marked, signature.read(marked)
    except HintError as error:
        raise pb_utils.TritonModelException(f"{path}, {marked.__name__}: {error}") from None


def path_of(config: Dict[str, Any]) -> str:
    """Return the path of the model's file, in the directory of its version or of the model."""
    directory = pb_utils.get_model_dir()
    file = config.get("default_model_filename") or "model.py"
    paths = [os.path.join(each, file) for each in (directory, os.path.dirname(directory))]
    for path in paths:
        if os.path.isfile(path):
            return path
    raise pb_utils.TritonModelException(f"unable to find '{paths[0]}' for model '{config['name']}'")


def import_file(path: str) -> Any:
    """Import a file, once until it changes.

    Its `from zmqtriton import model` works in a Python without zmqtriton as well.
    """
    known, _ = _imported.get(path, (-1, None))
    changed = known and os.stat(path).st_mtime_ns
    if known != changed:
        _provide_names()
        directory, file = os.path.split(path)
        for each in (directory, os.path.dirname(directory)):
            if each not in sys.path:
                sys.path.append(each)
        name = os.path.splitext(file)[0]
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"no module in {path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # hints are looked up there
        spec.loader.exec_module(module)
        _imported[path] = changed, module
    return _imported[path][1]


def pinned(path: str) -> Any:
    """Import a file again; this process and its forks keep it, whatever becomes of the file."""
    _imported.pop(path, None)
    module = import_file(path)
    _imported[path] = 0, module
    return module


def _provide_names() -> None:
    try:
        package = importlib.import_module("zmqtriton")
    except ImportError:
        package = sys.modules["zmqtriton"] = types.ModuleType("zmqtriton")
    for name in api.__all__:
        setattr(package, name, getattr(api, name))
