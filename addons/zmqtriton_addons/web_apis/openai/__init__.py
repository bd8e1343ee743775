"""OpenAI's API over models that make text or embeddings."""
