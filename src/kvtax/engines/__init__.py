"""How a server divides the memory of a card: rules by version range, each with its source."""
