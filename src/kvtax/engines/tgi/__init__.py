"""Text Generation Inference: KV takes what a warm-up step leaves below a share of the card."""
