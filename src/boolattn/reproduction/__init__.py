"""The paper's tables and figures: train, measure, and show our results beside the paper's."""
