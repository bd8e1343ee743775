import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Computes OUTPUT0 = INPUT0 + INPUT1 and OUTPUT1 = INPUT0 - INPUT1."""

    def execute(self, requests):
        # one list of requests in, one list of responses out, in the same order
        return [self.answer(request) for request in requests]

    def answer(self, request):
        left = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        right = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("OUTPUT0", left + right),
                pb_utils.Tensor("OUTPUT1", left - right),
            ]
        )
