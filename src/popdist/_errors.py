"""What can be wrong, as types.

PopdistError (a RuntimeError)
├── BadEnvironment      a POPDIST_ variable has a value that cannot be, or is missing
├── NotUniform          instances host different numbers of replicas; there is no instance index
├── BadUse              an argument that cannot work, or that differs between instances
└── BackendError        MPI
    ├── NotInitialized  a collective before init() or after finalizeBackend()
    └── WorldMismatch   MPI joined other processes than poprun started
"""

from __future__ import annotations


class PopdistError(RuntimeError):
    """The base of all errors, like the only error type, `popdist_error`, of Graphcore's C++ API."""


class BadEnvironment(PopdistError):
    """A POPDIST_ variable has an impossible value, or is missing."""


class NotUniform(PopdistError):
    """Instances host different numbers of replicas, so none of them can count the instances."""


class BadUse(PopdistError):
    """An argument is invalid, or differs between instances."""


class BackendError(PopdistError):
    """MPI is missing, or it fails."""


class NotInitialized(BackendError):
    """A collective was called before init() or after finalizeBackend()."""


class WorldMismatch(BackendError):
    """MPI joined other processes than those that poprun started."""
