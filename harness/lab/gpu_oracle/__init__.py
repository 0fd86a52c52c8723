"""A second implementation of the tensor-core models, on the GPU and in integer arithmetic only: it never asks the tensor core."""
