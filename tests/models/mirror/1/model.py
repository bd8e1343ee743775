import hashlib
import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils

#: What tests change where the code is to be another.
EDITION = 1


class TritonPythonModel:
    """Gives back every input, the parameters, and in SEEN a document of what it was asked."""

    def initialize(self, args):
        self.name, self.version = args["model_name"], args["model_version"]
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(
            json.loads(args["model_config"])
        )

    def execute(self, requests):
        answers = [self._answer(request) for request in requests]
        if not self.is_decoupled:
            return answers
        for request, answer in zip(requests, answers):
            final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            request.get_response_sender().send(answer, final)
        return None

    def _answer(self, request):
        inputs = sorted(request.inputs(), key=lambda tensor: tensor.name())
        parameters = json.loads(request.parameters())
        if parameters.get("fail"):
            raise pb_utils.TritonModelException(str(parameters["fail"]))
        left_s = request.remaining_s()
        seen = {
            "model": self.name,
            "version": self.version,
            "edition": EDITION,
            "id": request.request_id(),
            "sequence": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": parameters,
            "outputs": sorted(request.requested_output_names()),
            "inputs": [self._describe(tensor) for tensor in inputs],
            "deadline_ns": None if left_s is None else time.monotonic_ns() + int(left_s * 1e9),
        }
        text = np.array([json.dumps(seen, sort_keys=True).encode()], dtype=np.object_)
        outputs = [pb_utils.Tensor("SEEN", text)]
        outputs += [pb_utils.Tensor(f"{t.name()}_BACK", t.as_numpy()) for t in inputs]
        names = request.requested_output_names()
        said = {key: v for key, v in parameters.items() if not isinstance(v, float)}
        return pb_utils.InferenceResponse(
            [output for output in outputs if output.name() in names], parameters=said
        )

    def _describe(self, tensor):
        array = tensor.as_numpy()
        data = repr(array.tolist()).encode() if array.dtype == np.object_ else array.tobytes()
        return [tensor.name(), array.dtype.str, array.shape, hashlib.sha256(data).hexdigest()]
