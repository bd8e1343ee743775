"""Triton's tutorial, and the bodies of its examples for Ray Serve and Kafka without either.

The classes do with the API what the actors of the examples do: load a model when it is first asked
for, pass texts on, and make JSON of responses by their `__dict__`.
"""

import asyncio
import json
import sys
from pprint import pprint

import numpy
import tritonserver
from tritonserver._c.triton_bindings import TRITONSERVER_DataType


class NumpyEncoder(json.JSONEncoder):
    def default(self, o):
        return o.tolist() if isinstance(o, numpy.ndarray) else super().default(o)


class Deployment:
    """An actor of Ray Serve, whose methods are its routes."""

    def __init__(self, repositories):
        self._server = tritonserver.Server(
            model_repository=repositories,
            model_control_mode=tritonserver.ModelControlMode.EXPLICIT,
            log_info=False,
        )
        self._server.start(wait_until_ready=True)
        pprint(self._server.metadata()["name"])
        pprint(self._server.models())

    def identity(self, name):
        if not self._server.model("identity").ready():
            self._model = self._server.load("identity")
        texts = [
            response.outputs["string_output"].to_string_array()[0][0]
            for response in self._model.infer(inputs={"string_input": [[name]]})
        ]
        return "".join(texts)

    def image(self):
        pixels = numpy.full((1, 4), 200, numpy.float32)
        [response] = self._model.infer(inputs={"fp32_input": pixels})
        return numpy.from_dlpack(response.outputs["fp32_output"]).squeeze().astype(numpy.uint8)

    async def stream(self, count):
        model = self._server.load("counting")
        inputs = {"COUNT": [numpy.int32(count)]}
        async for response in model.async_infer(inputs=inputs):
            yield (
                "done" if response.final else int(numpy.from_dlpack(response.outputs["NUMBER"])[0])
            )

    def shut_down(self):
        self._server.stop()


class Endpoint:
    """An actor that gets messages of Kafka's."""

    def __init__(self, repositories, model, input_name):
        self.model_name, self.input_name = model, input_name
        self._server = tritonserver.Server(
            model_repository=repositories,
            model_control_mode=tritonserver.ModelControlMode.EXPLICIT,
            log_info=True,
            metrics=True,
            gpu_metrics=True,
            cpu_metrics=True,
        )
        self._server.start(wait_until_ready=True)
        if not self._server.model(model).ready():
            loaded = self._server.load(model)
            if not loaded.ready():
                raise RuntimeError("not ready")

    def infer(self, message):
        responses = self._server.model(self.model_name).infer(
            inputs={self.input_name: numpy.array(message)}
        )
        result = []
        for response in responses:
            outputs = {}
            for name, value in response.outputs.items():
                if value.data_type == TRITONSERVER_DataType.BYTES:
                    outputs[name] = value.to_string_array()
                else:
                    outputs[name] = numpy.from_dlpack(value)
            document = response.__dict__
            document["outputs"] = outputs
            document["model"] = document["model"].__dict__
            document["model"].pop("_server", None)
            result.append(json.dumps(document, cls=NumpyEncoder))
        return {"result": result}


def tutorial(repository):
    server = tritonserver.Server(model_repository=repository)
    server.start()
    print(server.models())

    model = server.model("identity")
    responses = model.infer(inputs={"string_input": [["hello world!"]]})
    for response in responses:
        print(response.outputs["string_output"].to_string_array())


tutorial(sys.argv[1])

deployment = Deployment([sys.argv[1]])
print(deployment.identity("Theodore"), deployment.identity("again"))
print(deployment.image())


async def streamed():
    return [item async for item in deployment.stream(2)]


print(asyncio.run(streamed()))
deployment.shut_down()

endpoint = Endpoint(sys.argv[1], "string_upper", "INPUT0")
for text in endpoint.infer([["one", "two"]])["result"]:
    print(text)
