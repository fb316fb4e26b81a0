"""Ablations, their runner and generators of training queries; not part of the wheel."""
