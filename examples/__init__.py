"""Examples that run from a source checkout."""
