#!/bin/bash
# Renews the locks: versions with hashes, no index address, so that any mirror serves them.
# wheels.txt says which file each hash is, so that a test can ask for which machines there are any.
set -eu
cd "$(dirname "$0")/.."
compile() { uv pip compile --quiet --universal --python-version 3.11 --generate-hashes "$@"; }
lock() { compile --no-emit-index-url --no-emit-find-links --no-header --no-annotate "$@"; }
demo=(--extra demo --group build)
release=(--extra pods --extra postgres --extra nvidia --extra kubernetes)
lock pyproject.toml "${demo[@]}" -o requirements/demo.lock
lock pyproject.toml "${demo[@]}" --group dev -c requirements/demo.lock -o requirements/dev.lock
lock pyproject.toml "${release[@]}" -c requirements/dev.lock -o requirements/release.lock
all=$(mktemp -d)
trap 'rm -r "$all"' EXIT
compile pyproject.toml "${demo[@]}" "${release[@]}" --group dev -c requirements/dev.lock \
    --format pylock.toml -o "$all/pylock.toml"
"${PYTHON:-.venv/bin/python}" -m tools.wheels "$all/pylock.toml" >requirements/wheels.txt
