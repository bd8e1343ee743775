import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 is INPUT0, CONTEXT that of its trace."""

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
        for named in ({"trace": request.trace()}, {}):
            answer = pb_utils.InferenceRequest(
                request_id="asked",
                model_name="identity_fp32",
                requested_output_names=["OUTPUT0"],
                inputs=[tensor],
                **named,
            ).exec()
        context = np.array([str(request.trace().get_context()).encode()], dtype=object)
        context_tensor = pb_utils.Tensor("CONTEXT", context)
        return pb_utils.InferenceResponse([*answer.output_tensors(), context_tensor])
