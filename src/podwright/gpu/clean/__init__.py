"""Says whether a node's GPUs are free of ended jobs, and ends what such jobs have left."""

from ._clean_hook import CleanHook as CleanHook
from ._clean_hook import hook as hook
from ._clean_hook import look as look
from ._clean_node import CleanReport as CleanReport
from ._clean_node import text as text
