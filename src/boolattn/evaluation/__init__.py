"""Evaluation of anything that ranks documents for Boolean queries; knows no model."""
