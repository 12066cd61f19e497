"""The kernels of the decoder."""
