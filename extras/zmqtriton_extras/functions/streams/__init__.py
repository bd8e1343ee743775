"""The backend `streams`: runs a TritonPythonModel with `admit` and `step` for many streams."""
