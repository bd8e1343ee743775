import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers every request with an error and its code."""

    def execute(self, requests):
        error = pb_utils.TritonError("nothing under that name", pb_utils.TritonError.NOT_FOUND)
        return [pb_utils.InferenceResponse(error=error) for _ in requests]
