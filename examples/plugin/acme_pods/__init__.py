"""What Acme adds to Podwright."""
