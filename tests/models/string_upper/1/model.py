import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 is INPUT0 in capital letters; the texts are UTF-8."""

    def execute(self, requests):
        responses = []
        for request in requests:
            words = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            upper = [word.decode("utf-8").upper().encode("utf-8") for word in words.ravel()]
            output = pb_utils.Tensor("OUTPUT0", np.array(upper, np.object_).reshape(words.shape))
            responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
        return responses
