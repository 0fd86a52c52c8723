"""Global, shared and tensor memory: who may read what, and when."""
