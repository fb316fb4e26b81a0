"""The builders of taxa, domains and QUEST's generated splits; not part of the wheel.

``boolattn.data.built`` reads what the first two write.
"""
