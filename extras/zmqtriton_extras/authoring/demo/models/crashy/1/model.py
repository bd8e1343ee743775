import ctypes
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils

ANSWER, EXIT, SEGMENTATION_FAULT, RAISE, HANG = range(5)


class TritonPythonModel:
    """Answers MODE 0 with the pid of this process; MODE 1 to 4 are four ways to fail."""

    def execute(self, requests):
        for request in requests:
            mode = int(pb_utils.get_input_tensor_by_name(request, "MODE").as_numpy()[0])
            if mode == EXIT:
                os._exit(1)
            elif mode == SEGMENTATION_FAULT:
                ctypes.string_at(0)
            elif mode == RAISE:
                raise ValueError("MODE 3 raises this")
            elif mode == HANG:
                time.sleep(3600)
        pid = pb_utils.Tensor("PID", np.array([os.getpid()], dtype=np.int32))
        return [pb_utils.InferenceResponse(output_tensors=[pid]) for _ in requests]
