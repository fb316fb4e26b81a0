"""The readers of the sources: one function for each domain, of its name."""
