"""How a launcher runs commands in a job's workers: door, call, exec and tunnel."""
