"""Variables of a worker that judges sealed cases: where it has its confined processes from."""

JAIL = "HARNESS_SEALED_JAIL"
"""The candidate's processes."""
EXECUTORS = "HARNESS_SEALED_EXECUTORS"
GPU_JAIL = "HARNESS_SEALED_GPU_JAIL"
"""On a GPU: those processes of the candidate that have it."""
