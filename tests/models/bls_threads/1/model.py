import concurrent.futures

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Asks identity_fp32 COUNT times from 8 threads and from its own; OUTPUT holds the answers."""

    def initialize(self, args):
        self._threads = concurrent.futures.ThreadPoolExecutor(8)

    def execute(self, requests):
        return [self._ask_many(request) for request in requests]

    def _ask_many(self, request):
        count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
        middle = count // 9
        theirs = self._threads.map(self._ask, range(middle, count))
        numbers = [self._ask(number) for number in range(middle)]
        output = pb_utils.Tensor("OUTPUT", np.array([*numbers, *theirs], dtype=np.float32))
        return pb_utils.InferenceResponse(output_tensors=[output])

    def _ask(self, number):
        response = pb_utils.InferenceRequest(
            model_name="identity_fp32",
            requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.Tensor("INPUT0", np.array([number], dtype=np.float32))],
        ).exec()
        return pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()[0]

    def finalize(self):
        self._threads.shutdown()
