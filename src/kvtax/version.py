"""The version: a literal, since reading it from the package's metadata costs more than the whole calculation."""

__version__ = "0.4.0"
