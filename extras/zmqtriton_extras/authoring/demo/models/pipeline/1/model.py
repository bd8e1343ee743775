import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers with UPPER from string_upper and SUM from add_sub, models that this one calls."""

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        left = pb_utils.get_input_tensor_by_name(request, "LEFT").as_numpy()
        right = pb_utils.get_input_tensor_by_name(request, "RIGHT").as_numpy()
        # The called models take batches, so each input gets a first dimension of 1.
        upper = self.ask("string_upper", {"TEXT": text}, "UPPER")
        total = self.ask("add_sub", {"INPUT0": left, "INPUT1": right}, "OUTPUT0")
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("UPPER", upper),
                pb_utils.Tensor("SUM", total),
            ]
        )

    def ask(self, model, inputs, output):
        """Return one output of another model; its error becomes the error of this request."""
        response = pb_utils.InferenceRequest(
            model_name=model,
            requested_output_names=[output],
            inputs=[
                pb_utils.Tensor(name, np.expand_dims(array, 0)) for name, array in inputs.items()
            ],
        ).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(f"{model}: {response.error().message()}")
        return pb_utils.get_output_tensor_by_name(response, output).as_numpy()[0]
