"""The machines and the fabric that a server serves: which there are, and how it reaches them."""
