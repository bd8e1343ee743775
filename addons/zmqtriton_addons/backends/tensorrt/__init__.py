"""The backend `tensorrt`: plans, which belong to a GPU."""
