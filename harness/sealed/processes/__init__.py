"""The processes of a sealed case: the worker that judges, the executor that launches for it, and those of the candidate."""
