"""Cue and scope of negation: BoolAttn's heads for NOT on annotated corpora."""
