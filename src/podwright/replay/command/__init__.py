"""What the words of `podwright replay` mean, and its report as text."""
