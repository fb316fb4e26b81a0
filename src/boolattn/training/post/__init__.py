"""Post-training of the learned gate; document vectors do not change."""
