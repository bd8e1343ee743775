"""The endpoints of SageMaker and Vertex AI: other names for routes of the HTTP API."""
