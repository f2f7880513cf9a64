"""What a model is: an inventory of tensors and one cache per layer."""
