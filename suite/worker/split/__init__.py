"""Split placement: some ranks generate the next batch while the others train on this one."""
