"""Writes down which requests came together, and is held by those whose id begins with `hold`.

A line for each execute: `id` or `id*rows` of each request, `-` for what fills an empty slot. A
request that is called `hold…` keeps the instance until a file of that name appears. With CALLS in
the parameters of the model, each request becomes so many questions to that model.
"""

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self.scratch = Path(parameters["SCRATCH"])
        self.journal = self.scratch / args["model_name"]
        self.calls = parameters.get("CALLS", "")
        self.times = int(parameters.get("TIMES", "0"))
        self.has_rows = config["max_batch_size"] > 0
        self.is_decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
        self.again = set()

    def execute(self, requests):
        self.write(" ".join(self.word(request) for request in requests))
        for request in requests:
            if request.request_id().startswith("hold"):
                self.wait(self.scratch / f"{self.journal.name}.{request.request_id()}")
        if self.calls:
            return asyncio.run(self.ask(requests))
        if self.is_decoupled:
            for request in requests:
                self.answer(request)
            return None
        return [self.response(request) for request in requests]

    def word(self, request):
        rows = len(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())
        name = request.request_id() or "-"
        return f"{name}*{rows}" if self.has_rows and rows > 1 else name

    def write(self, line):
        with self.journal.open("a", encoding="utf-8") as journal:
            journal.write(line + "\n")

    def wait(self, path):
        while not path.exists():
            time.sleep(0.002)

    def answer(self, request):
        sender = request.get_response_sender()
        if self.is_called_again(request):
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return
        sender.send(self.response(request))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def is_called_again(self, request):
        if not self.times or request.request_id() in self.again:
            return False
        self.again.add(request.request_id())
        return True

    def response(self, request):
        array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        rows = array[:, :1] if self.has_rows else array[:1]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ascontiguousarray(rows))])

    async def ask(self, requests):
        array = np.ones((1, 1), np.int32)
        questions = [
            pb_utils.InferenceRequest(
                model_name=self.calls,
                request_id="asked",
                inputs=[pb_utils.Tensor("IN", array)],
                requested_output_names=["OUT"],
            ).async_exec()
            for _ in requests
            for _ in range(6)
        ]
        for answer in await asyncio.gather(*questions):
            assert not answer.has_error(), answer.error().message()
        return [self.response(request) for request in requests]
