"""The third ring of tests: the real tools, as root on Debian."""
