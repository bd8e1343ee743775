import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Counts its starts, and evaluates what requests say."""

    def initialize(self, args):
        name, kind = args["model_name"], pb_utils.MetricFamily.COUNTER
        self.family = pb_utils.MetricFamily(name + "_starts", "Starts of instances", kind)
        self.starts = self.family.Metric({"model": name})
        self.starts.increment(1)
        self.at_first = self.starts.value()

    def finalize(self):
        [self.starts.increment(1) for _ in range(getattr(self, "at_end", 0))]

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        script = pb_utils.get_input_tensor_by_name(request, "SCRIPT").as_numpy().ravel()[0]
        text = str(eval(script.decode(), {"self": self, "pb_utils": pb_utils}))
        data = np.array([text.encode()], dtype=np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", data)])
