"""Triton kernels, and what launches them."""
