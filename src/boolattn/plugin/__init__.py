"""The plug-in: BoolAttn inside a Hugging Face encoder.

The only room that knows Hugging Face's attention. May import: boolattn.attention,
boolattn.logic (for the lexicon gate), boolattn.settings, boolattn.errors.
"""

from boolattn.plugin.attach import attach, detach, plugin_of
from boolattn.plugin.recording import Record, recording
from boolattn.plugin.storage import load, load_plugin, save, save_plugin

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
