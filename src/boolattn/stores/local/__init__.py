"""The local store: one folder of immutable files that a manifest names."""
