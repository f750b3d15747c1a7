"""The ending of a launch: a state machine without effects, and the search for the cause."""
