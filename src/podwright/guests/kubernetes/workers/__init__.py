"""How a launcher runs commands in a job's workers: door and call."""
