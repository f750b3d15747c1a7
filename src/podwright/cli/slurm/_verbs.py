"""`podwright slurm …`: the verbs that concern Slurm, one small file each."""

from __future__ import annotations

from podwright.cli.shared._verb_definition import VerbGroup

VERBS = (
    VerbGroup(
        "podwright slurm",
        "requests, scripts and logs of jobs under Slurm",
        readers={
            "for users": (
                "lint",
                "explain-request",
                "template",
                "check-binding",
                "check-fabric",
                "retry",
                "efficiency",
                "sample",
            ),
            "for administrators": ("configure", "check", "rehearse", "recover", "build"),
            "services and hooks": ("serve", "serve-lint", "twin", "adopt"),
        },
        modules={
            "adopt": "slurm._adopt",
            "explain-request": "slurm._explain_request",
            "lint": "slurm._lint",
            "rehearse": "slurm._rehearse",
            "twin": "slurm._twin",
            "check-binding": "slurm._check_binding",
            "template": "slurm._template",
            "check-fabric": "slurm._check_fabric",
            "efficiency": "slurm._efficiency",
            "sample": "slurm._efficiency",
            "configure": "slurm._configure",
            "build": "slurm._configure",
            "serve": "slurm._serve",
            "serve-lint": "slurm._serve_lint",
            "check": "slurm._check",
            "recover": "slurm._recover",
            "retry": "slurm._retry",
        },
    ),
)
