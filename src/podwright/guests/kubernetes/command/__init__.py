"""What the words of `podwright kubernetes` mean: objects in a cluster, an operator, its removal."""
