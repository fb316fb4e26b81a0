"""Training: auxiliary pretraining, retrieval training, the query parser."""
