"""The operator: the process that carries out what each job needs."""
