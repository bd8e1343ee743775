import numpy as np
import triton_python_backend_utils as pb_utils
from pictures import decode, to_input


class TritonPythonModel:
    """`input_image`: the files of `image`, decoded, scaled to 224 x 224 and normalised."""

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        files = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
        try:
            images = [to_input(decode(file)) for file in files]
        except ValueError as error:
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            )
        images = np.stack(images) if images else np.empty((0, 3, 224, 224), np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("input_image", images)])
