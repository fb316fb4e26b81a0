"""Boolean queries: operators, cue lexicon, trees, explicit syntax, templates."""
