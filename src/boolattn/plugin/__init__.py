"""BoolAttn attached to Hugging Face encoders."""
