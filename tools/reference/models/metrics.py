import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily(
            name="rows_total", description="Rows that were seen", kind=pb_utils.MetricFamily.COUNTER
        )
        self.rows = self.family.Metric(labels={"model": args["model_name"]})

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            self.rows.increment(x.shape[0])
            pb_utils.Logger.log_info(f"{self.rows.value():g} rows so far")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return responses
