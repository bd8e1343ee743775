class TritonPythonModel:
    """Fails on every request."""

    def execute(self, requests):
        raise ValueError("on purpose")
