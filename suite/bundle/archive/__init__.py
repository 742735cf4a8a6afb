"""A results folder as one file: packed, checked as a stranger's, opened where folders are read."""
