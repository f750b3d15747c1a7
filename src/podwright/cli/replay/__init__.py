"""`podwright replay`: recorded jobs on other hardware, or under other rules."""
