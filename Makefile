# Every target sets itself up: the environment lives in .venv and is rebuilt when a lock changes.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
BENCH ?=
# Commands are measured and demonstrated as they are installed: compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo format test compiled-tests test-outer test-kubernetes soak bench check lock proto docs release debian pictures page-pictures clean

help:  ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || { echo "Podwright needs Python 3.11 or newer with venv. On Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV) (once, about half a minute) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python requirements/demo.lock pyproject.toml
	@$(PIP) install --require-hashes --only-binary :all: -r requirements/demo.lock
	@$(PIP) install --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo requirements/dev.lock
	@$(PIP) install --require-hashes --only-binary :all: -r requirements/dev.lock
	@touch $@

demo: $(VENV)/.demo  ## Show a simulated pod, train on it, clean up; DEMO=moves: a launch moves; DEMO=redfish: devices are composed
	@$(BIN)/python examples/$(or $(DEMO),demo).py

# All of them run, so that one call shows everything there is to mend.
CHECKS := "lint-imports" "python -m tools.names" "python -m tools.limits" \
	"python -m tools.generate_wire --check" \
	"ruff check ." "ruff format --check ." "mypy"
check: $(VENV)/.dev  ## Layers, names, limits, generated files, style and types
	@failed=; for check in $(CHECKS); do $(BIN)/$$check || failed="$$failed  make check: $$check"$$'\n'; done; \
	[ -z "$$failed" ] || { printf 'These failed:\n%s' "$$failed" >&2; exit 1; }

format: $(VENV)/.dev  ## Mend the style, as far as a tool can
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

# Three workers for each core, as most tests wait for processes; a single room needs fewer. A worker
# that is done takes tests from another, because those of one folder, such as tests/whole, take long.
# Every test of tests/outer belongs to another ring: its modules need not be imported.
INNER := -m "not outer and not slurm and not twin and not kubernetes and not soak" --ignore tests/outer
ifdef ROOM
test: $(VENV)/.dev
	@$(BIN)/pytest -n 2 $(INNER) tests/$(ROOM)
else
test: $(VENV)/.dev  ## Everything that needs no root; tests of a room: make test ROOM=controller
	@$(MAKE) --no-print-directory --output-sync=target -j 2 check docs compiled-tests
	@$(BIN)/pytest -n $(shell echo $$((3 * $$(nproc)))) --dist worksteal $(INNER)
endif

# Compile the tests once. In a new clone each worker would compile all of them. An import that fails is
# reported by the run itself.
compiled-tests: $(VENV)/.dev
	@$(BIN)/pytest -q --collect-only $(INNER) >/dev/null || true

# Four files at once on each core: most of their time labs wait.
test-outer: $(VENV)/.dev  ## Real Slurm, hosts, databases (root on Debian; installs what it needs)
	@bash tests/outer/install.sh
	@$(BIN)/python -m tests.outer.lab
	@$(BIN)/pytest -n $(shell echo $$((4 * $$(nproc)))) --dist loadfile --no-loadscope-reorder -m "(outer or slurm or twin) and not soak"

test-kubernetes: $(VENV)/.dev  ## Real Kubernetes (root on Debian 12; builds one first, once, for minutes)
	@bash tests/outer/install.sh
	@[ -n "$${PODWRIGHT_KUBE_BIN:-}" ] || bash tests/kubernetes/build.sh >/dev/null
	@$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder -m "kubernetes and not soak"

soak: $(VENV)/.dev  ## The large counts
	@PODWRIGHT_SOAK=1 bash tests/outer/install.sh
	@PODWRIGHT_SOAK=1 $(BIN)/python -m tests.outer.lab
	@PODWRIGHT_SOAK=1 $(BIN)/pytest -m "outer or slurm or twin or kubernetes or soak or more" --timeout 3600

docs: $(VENV)/.dev  ## Build the documentation into docs/_build
	@$(BIN)/sphinx-build -q -W --keep-going -j auto -b html docs docs/_build

bench: $(VENV)/.dev  ## Figures, one JSON object a line; one of them: make bench BENCH=placement
	@$(BIN)/python -m bench $(BENCH)

proto: $(VENV)/.dev  ## Regenerate the wire's messages
	@$(BIN)/python -m tools.generate_wire

release: $(VENV)/.dev  ## Wheel, archive, SBOM, licences, Debian packages, checksums of HEAD, into dist/
	@rm -rf dist
	@$(BIN)/python -m tools.release
	@$(MAKE) --no-print-directory debian

# podwright-slurm for a Debian needs its libslurm-dev: SLURM_INCLUDE="trixie=DIR bookworm=DIR"
debian: $(VENV)/.dev  ## Debian packages of HEAD, into dist/
	@$(BIN)/python -m tools.debian $(addprefix --slurm-include ,$(SLURM_INCLUDE))

pictures: $(VENV)/.dev  ## Pictures of README and documentation, from a real run and the code
	@$(BIN)/python -m tools.pictures

page-pictures: $(VENV)/.dev  ## Pictures of the page, by Debian's Chromium; commit them with a view that changed
	@$(BIN)/python -m tools.page_pictures

lock: $(VENV)/.dev  ## Renew the locks (needs uv)
	@bash tools/lock.sh

clean:  ## Remove the environment and what tests left
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
