"""The verb of `podwright node`, which checks whether a node is fit for jobs."""
