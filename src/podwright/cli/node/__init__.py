"""The verbs of `podwright node`, which check whether a node is fit for jobs, and fast."""
