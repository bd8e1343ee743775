import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Passes its inputs on to add_sub, and the outputs back."""

    def execute(self, requests):
        return [self._pass_on(request) for request in requests]

    def _pass_on(self, request):
        response = pb_utils.InferenceRequest(
            model_name="add_sub",
            requested_output_names=["OUTPUT0", "OUTPUT1"],
            inputs=request.inputs(),
        ).exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(output_tensors=response.output_tensors())
