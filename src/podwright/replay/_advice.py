"""Times in words, for `replay.sharing`."""

from podwright.replay._report_tables import duration as duration
