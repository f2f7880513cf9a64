"""Many budgets compared: which change helps most."""
