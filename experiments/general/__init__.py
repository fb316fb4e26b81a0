"""The general model: its training data."""
