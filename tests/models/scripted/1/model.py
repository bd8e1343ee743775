import json
import textwrap

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def text_of(request, name="ARGUMENT"):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().ravel()[0].decode()


def reply(text):
    data = np.array([str(text).encode()], dtype=np.object_)
    return pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", data)])


def ask(model, script="", argument="", **more):
    inputs = [
        pb_utils.Tensor(name, np.array([text.encode()], dtype=np.object_))
        for name, text in (("SCRIPT", script), ("ARGUMENT", argument))
    ]
    return pb_utils.InferenceRequest(
        model_name=model, inputs=inputs, requested_output_names=["TEXT"], **more
    )


def answer_of(response):
    if response.has_error():
        return f"{response.error().code().name}: {response.error().message()}"
    return response.output_tensors()[0].as_numpy()[0].decode()


def body_of(script, begin="def"):
    scope = dict(globals())
    source = f"{begin} body(self, requests, request):\n" + textwrap.indent(script, "    ")
    exec(compile(source, "<script>", "exec"), scope)
    return scope["body"]


class TritonPythonModel:
    """Runs the SCRIPT of the first request of a batch in place of execute().

    With the parameter ASYNC the script is the body of a coroutine.
    """

    def initialize(self, args):
        self.args = args
        self.kept = {}
        if "ASYNC" in json.loads(args["model_config"])["parameters"]:
            self.execute = self.execute_async

    def execute(self, requests):
        return body_of(text_of(requests[0], "SCRIPT"))(self, requests, requests[0])

    async def execute_async(self, requests):
        body = body_of(text_of(requests[0], "SCRIPT"), "async def")
        return await body(self, requests, requests[0])

    def finalize(self):
        print("finalized " + self.args["model_name"], flush=True)  # noqa: T201
        raise ValueError("swallowed " + self.args["model_name"])
