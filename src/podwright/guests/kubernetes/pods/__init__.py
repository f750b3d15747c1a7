"""The pods of a job, and the manifests of the operator itself."""
