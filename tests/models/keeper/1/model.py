import time

import numpy as np
import triton_python_backend_utils as pb_utils

KEEPS = 4


class TritonPythonModel:
    """OUTPUT0 is INPUT0 + 1, calculated in place.

    KEPT are the first numbers of the last inputs, each twice: as it was then and as it is now.
    For less than 0 ms it forgets them.
    """

    def initialize(self, args):
        self._kept = []

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        array = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        pause = pb_utils.get_input_tensor_by_name(request, "MS").as_numpy()
        time.sleep(max(0, int(pause[0])) / 1000)
        array += 1
        self._kept = [*self._kept, (float(array.sum()), array)][-KEEPS:]
        kept = [value for then, now in self._kept for value in (then, float(now.sum()))]
        if pause[0] < 0:
            self._kept = []
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("OUTPUT0", array),
                pb_utils.Tensor("KEPT", np.array(kept, dtype=np.float32)),
            ]
        )
