"""Text to vectors: model names, the shipped model and its packed form."""
