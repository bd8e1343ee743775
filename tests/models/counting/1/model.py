import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Sends the numbers below COUNT, then FINAL alone, or stops when cancelled.

    Parameters of the request: `error_at`, a number in whose place an error comes; `pause_ms` before
    each; `with_last`, for FINAL with the last number.
    """

    def execute(self, requests):
        for request in requests:
            self._count(request)

    def _count(self, request):
        count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
        parameters = json.loads(request.parameters())
        sender = request.get_response_sender()
        for number in range(count):
            time.sleep(parameters.get("pause_ms", 0) / 1000)
            if sender.is_cancelled():
                break
            is_last = number == count - 1 and parameters.get("with_last", False)
            sender.send(self._response(number, parameters), FINAL if is_last else 0)
            if is_last:
                return
        sender.send(flags=FINAL)

    def _response(self, number, parameters):
        if number == parameters.get("error_at"):
            error = pb_utils.TritonError("left out", pb_utils.TritonError.UNSUPPORTED)
            return pb_utils.InferenceResponse(error=error)
        output = pb_utils.Tensor("NUMBER", np.array([number], dtype=np.int32))
        return pb_utils.InferenceResponse(output_tensors=[output])
