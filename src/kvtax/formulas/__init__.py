"""Pure functions of inference memory: integers in, bytes out."""
