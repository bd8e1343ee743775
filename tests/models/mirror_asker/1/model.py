import base64
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def array_of(dtype, shape, data):
    if dtype == "object":
        values = [base64.b64decode(value) for value in data]
        return np.array(values, dtype=np.object_).reshape(shape)
    return np.frombuffer(base64.b64decode(data), dtype=dtype).reshape(shape)


def told_of(tensor):
    array = tensor.as_numpy()
    if array.dtype == np.object_:
        data = [base64.b64encode(value).decode() for value in array.ravel()]
        return ["object", array.shape, data]
    return [array.dtype.name, array.shape, base64.b64encode(array.tobytes()).decode()]


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        call = json.loads(request.inputs()[0].as_numpy()[0])
        inputs = [pb_utils.Tensor(name, array_of(*rest)) for name, *rest in call.pop("inputs")]
        response = pb_utils.InferenceRequest(inputs=inputs, **call).exec()
        if response.has_error():
            error = response.error()
            report = {"code": error.code().name, "text": error.message()}
        else:
            outputs = {t.name(): told_of(t) for t in response.output_tensors()}
            report = {"outputs": outputs, "parameters": json.loads(response.parameters())}
        text = np.array([json.dumps(report).encode()], dtype=np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", text)])
