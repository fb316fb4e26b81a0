"""BoolAttn's parts by the paper's names: cue, scope, bias, gate, and their sum.

Tensors only. May import: boolattn.errors.
"""
