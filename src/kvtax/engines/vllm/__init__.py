"""vLLM: what it takes of a card, and how it cuts its KV pool into blocks."""
