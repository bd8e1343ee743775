import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if (x < 0).any():
            error = pb_utils.TritonError("X has negative numbers", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        y = pb_utils.Tensor("Y", np.sqrt(x))
        return pb_utils.InferenceResponse([y], parameters={"largest": str(x.max())})
