"""Stores of vectors that somebody else filled, behind one interface."""
