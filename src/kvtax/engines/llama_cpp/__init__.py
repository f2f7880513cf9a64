"""llama.cpp, and the servers that run it: Ollama, LM Studio."""
