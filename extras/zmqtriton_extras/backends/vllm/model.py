"""Answers with text by vLLM, one engine for an instance; its batches are the engine's own.

The version directory holds model.json, the arguments of the engine, as in Triton's backend.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from typing import Any, Dict, Optional, Set

import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration, execution
from zmqtriton_extras.backends.engine_metrics import EngineMetrics
from zmqtriton_extras.backends.vllm import generation

_ADAPTERS = "multi_lora.json"


class Adapters:
    """LoRA adapters that requests may name, from the file multi_lora.json of Triton's backend."""

    def __init__(self, directory: str) -> None:
        """Read the file, if there is one: an object of names and paths."""
        path = os.path.join(directory, _ADAPTERS)
        self._paths: Dict[str, str] = {}
        if not os.path.exists(path):
            return
        paths = configuration.read_json(path)
        if not isinstance(paths, dict) or not all(isinstance(p, str) for p in paths.values()):
            raise pb_utils.TritonModelException(f"{path} must have a path for each name")
        self._paths = paths

    def arguments(self, name: str) -> Dict[str, Any]:
        """Return the arguments of generate() for an adapter, or for none. Raises ValueError."""
        if not name:
            return {}
        if name not in self._paths:
            raise ValueError(f"unknown LoRA adapter '{name}'; multi_lora.json lists the adapters")
        from vllm.lora.request import LoRARequest

        # numbers begin with 1 in vLLM
        number = list(self._paths).index(name) + 1
        return {"lora_request": LoRARequest(name, number, self._paths[name])}


_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_ARGUMENTS = "model.json"


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        return generation.complete(config)

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        if not pb_utils.using_decoupled_model_transaction_policy(config):
            raise pb_utils.TritonModelException(
                f"model '{config['name']}' of backend 'vllm' must be decoupled"
            )
        arguments = _arguments(config)
        if args["model_instance_kind"] == "GPU":
            # before vllm is imported; it has no other way to choose a device
            os.environ["CUDA_VISIBLE_DEVICES"] = args["model_instance_device_id"]
        try:
            import vllm
        except ImportError as error:
            raise configuration.require("vllm", "vllm", "vllm", error) from error
        self._sampling = vllm.SamplingParams
        self._sampling_params = getattr(vllm, "sampling_params", None)
        self._adapters = Adapters(os.path.dirname(configuration.find_file(config, _ARGUMENTS)))
        engine_arguments = vllm.AsyncEngineArgs(**arguments)
        self._engine = vllm.AsyncLLMEngine.from_engine_args(engine_arguments)
        self._metrics = _engine_metrics(config, args["model_version"])
        #: asyncio itself would forget them
        self._tasks: Set[Any] = set()

    async def execute(self, requests: list[Any]) -> None:
        for request in requests:
            task = asyncio.ensure_future(self._answer(request, request.get_response_sender()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Any, sender: Any) -> None:
        try:
            question = generation.Question.of(request)
            await self._generate(question, sender)
        except Exception as error:  # noqa: BLE001 - the client is told
            sender.send(execution.failure(error), _FINAL)

    async def _generate(self, question: generation.Question, sender: Any) -> None:
        number = uuid.uuid4().hex
        answer = generation.Answer(question)
        output = None
        form = generation.structured_output(self._sampling_params, question.form)
        sampling = self._sampling(**question.sampling, **form)
        more = self._adapters.arguments(question.adapter)
        async for output in self._engine.generate(question.prompt, sampling, number, **more):
            if sender.is_cancelled():
                await self._engine.abort(number)
                sender.send(flags=_FINAL)
                return
            if question.is_streamed:
                sender.send(answer.response(output), _FINAL if output.finished else 0)
                if output.finished:
                    return
        if output is None:
            raise RuntimeError("the engine has ended without an error; read the log of the model")
        sender.send(answer.response(output), _FINAL)

    def finalize(self) -> None:
        shutdown = getattr(self._engine, "shutdown", None)
        if shutdown is not None:
            shutdown()
        if self._metrics is not None:
            self._metrics.end()


def _engine_metrics(config: dict[str, Any], version: str) -> Optional[EngineMetrics]:
    """Pass the engine's figures to the server's page, if the model's configuration asks for it."""
    if not configuration.flag(config, "REPORT_CUSTOM_METRICS", False):
        return None
    import prometheus_client  # vllm brings it

    labels = {"model": config["name"], "version": version}
    return EngineMetrics(prometheus_client.REGISTRY, "vllm:", labels)


def _arguments(config: dict[str, Any]) -> dict[str, Any]:
    path = configuration.find_file(config, _ARGUMENTS)
    document = configuration.read_json(path)
    if not isinstance(document, dict):
        raise pb_utils.TritonModelException(f"{path} must be a JSON object")
    return document
