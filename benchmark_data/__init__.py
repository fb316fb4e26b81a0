"""The builders of the benchmarks taxa and domains, from their sources; not part of the wheel.

``boolattn.data.catalog`` reads what they write.
"""
