"""BoolAttn on tensors: cue, scope, bias and gate, and the attention bias they make."""
