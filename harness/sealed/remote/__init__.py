"""A sealed launch: the candidate's process compiles and asks, the process that holds device memory executes."""
