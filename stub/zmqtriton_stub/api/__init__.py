"""The API of models: the classes and functions of triton_python_backend_utils."""
