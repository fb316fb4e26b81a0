"""Export of a trained model to a folder for onnxruntime."""

from boolattn.files import require

require("export", ("onnx", "onnxscript"), "train")
