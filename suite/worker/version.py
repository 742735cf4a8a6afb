"""The version of the suite, in one place: the package is built from it and every rank reports it."""

__version__ = "0.1.0"
