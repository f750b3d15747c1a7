"""The verbs of `podwright node`: whether a node is fit for jobs, and its GPUs free."""
