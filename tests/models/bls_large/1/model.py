import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Sends COUNT numbers to identity_fp32 ten times; OUTPUT holds the sums of what came back."""

    def execute(self, requests):
        return [self._ask_often(request) for request in requests]

    def _ask_often(self, request):
        count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
        sums = [self._ask(np.full(count, number, np.float32)) for number in range(10)]
        output = pb_utils.Tensor("OUTPUT", np.array(sums, dtype=np.float32))
        return pb_utils.InferenceResponse(output_tensors=[output])

    def _ask(self, array):
        response = pb_utils.InferenceRequest(
            model_name="identity_fp32",
            requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.Tensor("INPUT0", array)],
        ).exec()
        array += 1  # the other model has it no more
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy().sum()
