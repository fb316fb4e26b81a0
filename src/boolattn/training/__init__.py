"""Training: auxiliary pretraining, retrieval training, post-training."""
