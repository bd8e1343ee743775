"""The backend `openvino`: models that OpenVINO reads."""
