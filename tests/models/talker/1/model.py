import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Logs its input at each level."""

    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            for element in tensor.ravel():
                word = element.decode()
                pb_utils.Logger.log_verbose(f"verbose {word}")
                pb_utils.Logger.log_info(f"info {word}")
                pb_utils.Logger.log_warn(f"warning {word}")
                pb_utils.Logger.log_error(f"error {word}")
            output = pb_utils.Tensor("OUTPUT0", tensor)
            responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
        return responses
