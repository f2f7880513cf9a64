"""LMDeploy: KV takes a share of what is free after weights, with TurboMind or the PyTorch engine."""
