# make bench    measure a messaging system on this machine: sets everything up, runs, prints a table and names the report
# make test     all tests
# make lint     formatting, lints and types
# make format   format the sources
# make build    set up .venv with both programs, streamgauge and gauge, and nothing else
# make chart    check the Helm chart and render it for its tests; needs helm
# make test-kubernetes  tests on the cluster of KUBECONFIG (tests/test_kubernetes_real.py says what it needs); not part of make test
# make clean    remove what make made (runs/ holds your measurements and stays)
#
# Variables: PYTHON (the Python that .venv is made with), ARGS (more arguments: make bench ARGS="--help", make test-python ARGS="-k packaging")

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
ARGS ?=

# Where rustup puts cargo, for a shell that was started before Rust was installed. The user's own cargo goes first.
export PATH := $(PATH):$(HOME)/.cargo/bin
# The environment's own packages and nothing of the caller's Python.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
export PIP_USER := 0

# Whatever is in a crate belongs to the program, and a directory's date changes when a file in it is removed.
RUST_SOURCES := Cargo.toml Cargo.lock .cargo/config.toml $(shell find crates)
PACKAGE_SOURCES := pyproject.toml README.md $(shell find streamgauge.data)

.PHONY: help bench build test test-rust test-python test-kubernetes chart lint format clean machine-build machine-lint machine-bench machine-test

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

bench: machine-bench $(VENV)/.package
	$(BIN)/streamgauge bench $(ARGS)

build: machine-build $(VENV)/.package

test: test-rust test-python

test-rust: machine-test
	@started=$$SECONDS; set -x; cargo test --release --workspace; { set +x; } 2>/dev/null; \
	echo "the Rust tests took $$((SECONDS - started)) s (building included)"

test-python: machine-test $(VENV)/.package $(VENV)/.tools
	$(BIN)/python -m pytest $(ARGS)

test-kubernetes: machine-build $(VENV)/.package $(VENV)/.tools
	STREAMGAUGE_KUBERNETES=1 $(BIN)/python -m pytest -m kubernetes tests/test_kubernetes_real.py $(ARGS)

chart:
	helm lint --strict --kube-version 1.34.0 --values tests/data/chart-values.yaml deploy/helm/streamgauge
	tools/render-chart.sh render > tests/data/chart-rendered.yaml.new
	mv tests/data/chart-rendered.yaml.new tests/data/chart-rendered.yaml

lint: machine-lint $(VENV)/.package $(VENV)/.tools
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: machine-lint $(VENV)/.tools
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf target $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find python tests benches -name __pycache__ -type d -prune -exec rm -rf {} +

machine-build machine-lint machine-bench machine-test: machine-%:
	@tools/prepare-machine.sh $*

# requirements GROUP: what pyproject.toml asks for, one requirement a line.
define requirements
$(BIN)/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb")); print(*$(1), sep="\n")'
endef

# The environment with what builds the package. Builds are not isolated from it: pip would fetch maturin for each of them.
$(VENV)/.made: | machine-build
	@echo "making the virtual environment $(VENV)"
	@"$$(tools/prepare-machine.sh python)" -m venv --clear $(VENV)
	@$(call requirements,project["build-system"]["requires"]) > $(VENV)/build-requirements.txt
	$(PIP) install --quiet --requirement $(VENV)/build-requirements.txt
	@touch $@

# Both programs and the dependencies. cargo goes first because it shows its progress; maturin finds its work done.
# The install is editable: a change in python/ counts at once, and one in crates/ with the next make.
$(VENV)/.package: $(VENV)/.made $(RUST_SOURCES) $(PACKAGE_SOURCES) | machine-build
	cargo build --release --package gauge
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install --quiet --no-build-isolation --editable .
	@touch $@

$(VENV)/.tools: $(VENV)/.made pyproject.toml | machine-build
	@$(call requirements,project["project"]["optional-dependencies"]["dev"]) > $(VENV)/tool-requirements.txt
	$(PIP) install --quiet --requirement $(VENV)/tool-requirements.txt
	@touch $@
