"""Large tensors: this process's arena, the mapped segments of others, and GPU memory."""
