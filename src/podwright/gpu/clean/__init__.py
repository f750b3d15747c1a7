"""Says whether a node's GPUs are free of ended jobs, and ends what such jobs have left."""

from podwright.gpu.clean._clean_hook import CleanHook, hook, look
from podwright.gpu.clean._clean_node import CleanReport, text

__all__ = ["CleanHook", "CleanReport", "hook", "look", "text"]
