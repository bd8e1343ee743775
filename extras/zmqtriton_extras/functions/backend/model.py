"""Runs the functions of a file: the model whose name one has, or the only one that there is."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import types
from typing import Any, Dict, List, Tuple

import triton_python_backend_utils as pb_utils

from zmqtriton_extras.functions.backend import api, calls, signature
from zmqtriton_extras.functions.backend.kinds import HintError

#: The modules of files that were imported, with the time of their last change.
_imported: Dict[str, Tuple[int, Any]] = {}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        _, interface = _find(config.as_dict())
        try:
            return signature.complete(config, interface)
        except ValueError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def initialize(self, args: Dict[str, str]) -> None:
        marked, self._signature = _find(json.loads(args["model_config"]))
        self._function = marked() if isinstance(marked, type) else marked
        has_batches = self._signature.settings.batch > 0
        name = "stream" if self._signature.is_stream else "batch" if has_batches else "call"
        self.execute = getattr(self, f"_{name}_async" if self._signature.is_async else f"_{name}")

    def finalize(self) -> None:
        close = getattr(self._function, "close", None)
        if isinstance(self._function, types.FunctionType) or close is None:
            return
        close()

    # ------------------------------------------------------- one call a request

    def _call(self, requests: List[Any]) -> List[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            answer = self._function(**calls.arguments(self._signature, request))
            return calls.response(self._signature, answer)
        except Exception as error:  # noqa: BLE001 - the requester is told what the function raises
            return calls.failure(error)

    async def _call_async(self, requests: List[Any]) -> List[Any]:
        import asyncio  # most functions do without it

        return list(await asyncio.gather(*map(self._answer_async, requests)))

    async def _answer_async(self, request: Any) -> Any:
        try:
            answer = await self._function(**calls.arguments(self._signature, request))
            return calls.response(self._signature, answer)
        except Exception as error:  # noqa: BLE001 - the requester is told what the function raises
            return calls.failure(error)

    # ----------------------------------------------------------------- batches

    def _batch(self, requests: List[Any]) -> List[Any]:
        return calls.Batch(self._signature, requests).run(self._function)

    async def _batch_async(self, requests: List[Any]) -> List[Any]:
        return await calls.Batch(self._signature, requests).run_async(self._function)

    # ----------------------------------------------------------------- streams

    def _stream(self, requests: List[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                answers = iter(self._function(**calls.arguments(self._signature, request)))
                for answer in answers:
                    if sender.is_cancelled():
                        _close(answers)
                        break
                    sender.send(calls.response(self._signature, answer))
            except Exception as error:  # noqa: BLE001 - the requester is told
                sender.send(calls.failure(error))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    async def _stream_async(self, requests: List[Any]) -> None:
        import asyncio  # most functions do without it

        await asyncio.gather(*map(self._send_async, requests))

    async def _send_async(self, request: Any) -> None:
        sender = request.get_response_sender()
        try:
            answers = self._function(**calls.arguments(self._signature, request))
            async for answer in answers:
                if sender.is_cancelled():
                    await answers.aclose()
                    break
                sender.send(calls.response(self._signature, answer))
        except Exception as error:  # noqa: BLE001 - the requester is told
            sender.send(calls.failure(error))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _close(answers: Any) -> None:
    if hasattr(answers, "close"):
        answers.close()


# ------------------------------------------------------------------ the file


def _find(config: Dict[str, Any]) -> Tuple[Any, signature.Signature]:
    """Return the function of a model, or class, and its signature."""
    path = _path(config)
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


def _path(config: Dict[str, Any]) -> str:
    """Return the path of the file: in the version's directory, or in the model's."""
    directory = pb_utils.get_model_dir()
    file = config.get("default_model_filename") or "model.py"
    paths = [os.path.join(each, file) for each in (directory, os.path.dirname(directory))]
    for path in paths:
        if os.path.isfile(path):
            return path
    raise pb_utils.TritonModelException(f"unable to find '{paths[0]}' for model '{config['name']}'")


def import_file(path: str) -> Any:
    """Import a file once; it finds the names of the API in `zmqtriton`, in every Python."""
    changed = os.stat(path).st_mtime_ns
    if _imported.get(path, (0, None))[0] != changed:
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


def _provide_names() -> None:
    if "zmqtriton" not in sys.modules and importlib.util.find_spec("zmqtriton") is None:
        sys.modules["zmqtriton"] = types.ModuleType("zmqtriton")
    package = importlib.import_module("zmqtriton")
    for name in api.__all__:
        setattr(package, name, getattr(api, name))
