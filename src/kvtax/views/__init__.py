"""One file per output format, over results only."""
