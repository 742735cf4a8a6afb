"""Benchmarks of the suite itself: what measuring costs. Run all with `make bench-self`."""
