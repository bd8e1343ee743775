"""POST /v1/responses: a chat in the form of OpenAI's newer API."""
