"""How well a model parses: frozen test sets, accuracy, and the table of both."""
