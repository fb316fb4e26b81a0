"""Engines that find the nearest vectors, behind one interface."""
