"""Bool-BERT, the two-tower model, the query parser, and their export to ONNX."""
