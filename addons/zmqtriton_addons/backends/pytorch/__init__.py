"""The backend `pytorch`: TorchScript, exported programs, AOTInductor packages, and modules."""
