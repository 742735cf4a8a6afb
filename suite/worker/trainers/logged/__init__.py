"""Trainers that run in processes and images of their own: the suite starts them and reads the steps that they log."""
