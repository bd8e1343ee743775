import asyncio
import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """`is_ready` does what the model's file in the directory says, and counts there how often."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.directory = config["parameters"]["directory"]["string_value"]
        self.name = args["model_name"]
        if "async" in self.name:
            self.is_ready = self._is_ready_async

    def execute(self, requests):
        text = pb_utils.Tensor("TEXT", np.array([b"done"], dtype=np.object_))
        return [pb_utils.InferenceResponse([text]) for _ in requests]

    def is_ready(self):
        self._count()
        while (said := self._said()) == "hang":
            time.sleep(0.05)
        return said == "yes"

    async def _is_ready_async(self):
        self._count()
        await asyncio.sleep(0)
        return self._said() == "yes"

    def _count(self):
        with open(os.path.join(self.directory, self.name + ".asked"), "a") as file:
            file.write("x")

    def _said(self):
        with open(os.path.join(self.directory, self.name)) as file:
            return file.read()
