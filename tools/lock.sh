#!/bin/bash
# Renews both locks: versions with hashes, no index address, so that any mirror serves them.
set -eu
cd "$(dirname "$0")/.."
lock() { uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-header --no-annotate "$@"; }
lock pyproject.toml --extra demo --group build -o requirements/demo.lock
lock pyproject.toml --extra demo --group build --group dev -c requirements/demo.lock -o requirements/dev.lock
