"""Objects of Kubernetes in the form of JSON, which many tests make."""

from typing import Any

Object = dict[str, Any]


def pod(name: str, script: str, node: str = "", **spec: object) -> Object:
    """Return a pod that runs a script of shell once."""
    container = {
        "name": "main",
        "image": "localhost/busybox:lab",
        "command": ["sh", "-ec", script],
    }
    where = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "restartPolicy": "Never", **where, **spec},
    }
