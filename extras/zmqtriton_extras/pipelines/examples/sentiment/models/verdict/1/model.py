import numpy as np
import triton_python_backend_utils as pb_utils

LABELS = np.array([b"unkind", b"kind"], np.object_)


class TritonPythonModel:
    """`LABEL`: the name of the higher of two scores; `SCORE`: its share after softmax."""

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        logits = pb_utils.get_input_tensor_by_name(request, "LOGITS").as_numpy()
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        labels = LABELS[logits.argmax(1)][:, None]
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("LABEL", labels), pb_utils.Tensor("SCORE", shares.max(1)[:, None])]
        )
