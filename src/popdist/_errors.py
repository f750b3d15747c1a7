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
    """Base of all; like the one error type, `popdist_error`, of Graphcore's C++ API."""


class BadEnvironment(PopdistError):
    """A POPDIST_ variable has a value that cannot be, or is missing."""


class NotUniform(PopdistError):
    """Instances host different numbers of replicas, so that they cannot be counted from here."""


class BadUse(PopdistError):
    """An argument that cannot work, or that differs between instances."""


class BackendError(PopdistError):
    """MPI is missing or fails."""


class NotInitialized(BackendError):
    """A collective before init() or after finalizeBackend()."""


class WorldMismatch(BackendError):
    """MPI joined other processes than poprun started."""
