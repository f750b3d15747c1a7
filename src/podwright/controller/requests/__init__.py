"""What a request for devices asks for, whether it can be met, and why not."""
