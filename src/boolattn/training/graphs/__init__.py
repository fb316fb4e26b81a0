"""CUDA graphs of the towers' forward and backward passes."""
