"""Post-training: learned gate, query parser and calibration; document vectors do not change."""
