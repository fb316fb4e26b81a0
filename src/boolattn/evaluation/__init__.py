"""How well anything that ranks answers Boolean queries.

Metrics need numpy alone; rankers import what they rank with when they are made. May import:
boolattn.composition, boolattn.encoder, boolattn.data, boolattn.logic, boolattn.errors.
"""
