"""Many cases: choose, resume, reduce, store reproducers, count, tell."""
