import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Gives back every tensor it got, and in SEEN what numpy and the tensor say of each."""

    def execute(self, requests):
        return [self._give_back(request) for request in requests]

    def _give_back(self, request):
        outputs = []
        seen = []
        # Their order is Triton's, which is that of a hash.
        for tensor in sorted(request.inputs(), key=lambda tensor: tensor.name()):
            array = tensor.as_numpy()
            facts = [tensor.name(), tensor.shape(), tensor.is_cpu()]
            seen.append(repr([*facts, array.dtype.str, array.shape, array.tolist()]).encode())
            outputs.append(pb_utils.Tensor(tensor.name() + "_BACK", array))
        outputs.append(pb_utils.Tensor("SEEN", np.array(seen, dtype=np.object_)))
        return pb_utils.InferenceResponse(outputs)
