"""Results folders as one file."""
