"""Training: what is drawn, what is lost, auxiliary pretraining, then two towers.

It takes a ``validate`` callable and never looks into evaluation.
May import: boolattn.composition, boolattn.encoder, boolattn.plugin, boolattn.attention,
boolattn.data, boolattn.logic, boolattn.settings, boolattn.embedding.models, boolattn.errors.
"""
