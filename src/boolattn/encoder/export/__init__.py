"""Export of a trained model to a folder for onnxruntime."""
