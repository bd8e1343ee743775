import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers with UPPER, which is TEXT of any shape in capital letters."""

    def execute(self, requests):
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            try:
                upper = [element.decode().upper().encode() for element in text.ravel()]
            except UnicodeDecodeError as error:
                # only this request fails; the others of the batch are answered
                problem = pb_utils.TritonError(
                    f"TEXT is not UTF-8: {error}", pb_utils.TritonError.INVALID_ARG
                )
                responses.append(pb_utils.InferenceResponse(error=problem))
                continue
            output = np.array(upper, dtype=np.object_).reshape(text.shape)
            responses.append(
                pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("UPPER", output)])
            )
        return responses
