import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Passes INPUT0 on in the way that the parameter "way" says."""

    def execute(self, requests):
        responses = []
        for request in requests:
            options = json.loads(request.parameters())
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            response = getattr(self, "_" + options["way"])(tensor, options)
            responses.append(response)
        return responses

    def _through(self, tensor, options):
        """Through another model and back."""
        [output] = _ask("identity_fp32", tensor).exec().output_tensors()
        return pb_utils.InferenceResponse([output])

    def _made(self, tensor, options):
        """The same with a tensor of its own."""
        return self._through(pb_utils.Tensor("INPUT0", tensor.as_numpy() * 2), options)

    def _written(self, tensor, options):
        """The same after a change in place."""
        tensor.as_numpy()[-1] = 5
        return self._through(pb_utils.Tensor("INPUT0", tensor.as_numpy()), options)

    def _back(self, tensor, options):
        """As an array."""
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())])

    def _kept(self, tensor, options):
        """The same; and keeps it, and changes what it kept before."""
        array = tensor.as_numpy()
        self.array = getattr(self, "array", array[:1].copy())
        self.array[:] = -1
        self.array = array
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)])

    def _unawaited(self, tensor, options):
        """Answers while another model still reads."""
        self._responses = _ask("held", tensor, {"path": options["path"]}).exec(decoupled=True)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.zeros(1, np.float32))])

    def _awaited(self, tensor, options):
        response = _ask("held", tensor, {"path": options["path"]}).exec()
        return pb_utils.InferenceResponse(response.output_tensors())


def _ask(model, tensor, parameters=None):
    return pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=["OUTPUT0"],
        inputs=[pb_utils.Tensor("INPUT0", tensor.as_numpy())] if parameters else [tensor],
        parameters=parameters,
    )
