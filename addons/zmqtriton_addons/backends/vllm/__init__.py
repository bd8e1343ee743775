"""The backend `vllm`: text from large language models."""
