"""BoolAttn attached to Hugging Face encoders."""

from boolattn.plugin.backend import Record, recording
from boolattn.plugin.install import detach, plugin_of
from boolattn.plugin.storage import attach, load, load_plugin, save, save_plugin

__all__ = [
    "Record",
    "attach",
    "detach",
    "load",
    "load_plugin",
    "plugin_of",
    "recording",
    "save",
    "save_plugin",
]
