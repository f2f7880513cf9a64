"""The Hugging Face hub: names, requests, what is cached, and how a model is read from it."""
