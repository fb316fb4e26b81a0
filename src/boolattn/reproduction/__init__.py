"""The paper's tables and figures, and our own results: many runs from one command.

May import: boolattn.evaluation, boolattn.training, boolattn.composition, boolattn.encoder,
boolattn.plugin.explain, boolattn.plugin, boolattn.data, boolattn.logic, boolattn.errors.
"""
