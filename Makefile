# make bench    measure a messaging system on this machine: sets everything up, runs, prints a table and names the report
# make test     all tests that a change must pass, Rust's and Python's (docs/testing.md)
# make test-fast  those that start nothing, for the loop while writing: about a minute
# make test-long  experiments and variants that take long; not part of make test
# make lint     formatting, lints, types and the layers of the lab (lint-rust, lint-python: one half of it)
# make format   format the sources
# make build    set up .venv with both programs, streamgauge and gauge, and nothing else
# make fuzz     feed every parser of what others send or write with inputs that find their way by coverage, a few seconds each (fuzz/README.md)
# make lock     write the locked Python packages (requirements/) anew; needs uv
# make audit    known vulnerabilities and licences of everything that is locked; needs cargo-deny, pip-audit and the network (docs/dependencies.md)
# make sbom     list what the gauge binary and the lab are made of: dist/streamgauge.cdx.json (CycloneDX)
# make chart    check the Helm chart and render it for its tests; needs helm
# make test-kubernetes  tests on the cluster of KUBECONFIG (tests/test_kubernetes_real.py says what it needs); not part of make test
# make new-system NAME=...  lay the skeleton of a system in a package of its own, in ./NAME-system or IN=DIRECTORY (docs/adding-a-system.md)
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
TARGET ?=

# Where rustup puts cargo, for a shell that was started before Rust was installed. The user's own cargo goes first.
export PATH := $(PATH):$(HOME)/.cargo/bin
# The environment's own packages and nothing of the caller's Python. Compiled sources are kept: the tests start the lab hundreds of times.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE VIRTUAL_ENV
export PIP_USER := 0

# Whatever is in a crate belongs to the program, and a directory's date changes when a file in it is removed.
RUST_SOURCES := Cargo.toml Cargo.lock .cargo/config.toml $(shell find crates)
PACKAGE_SOURCES := pyproject.toml README.md $(shell find streamgauge.data)

.PHONY: help bench build test test-rust test-python test-fast test-long test-kubernetes chart fuzz lock audit sbom lint lint-rust lint-python format clean new-system machine-build machine-lint machine-bench machine-test

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

bench: machine-bench $(VENV)/.package
	$(BIN)/streamgauge bench $(ARGS)

build: machine-build $(VENV)/.package

test test-python test-fast test-long: ENVIRONMENT := $(VENV)/.dependencies $(VENV)/.tools
test: machine-test $(VENV)/.package $(VENV)/.tools
	@$(BIN)/python tools/suite.py all $(ARGS)

test-rust: machine-test $(VENV)/.made
	@$(BIN)/python tools/suite.py rust

test-python test-fast test-long: test-%: machine-test $(VENV)/.package $(VENV)/.tools
	@$(BIN)/python tools/suite.py $* $(ARGS)

test-kubernetes: machine-build $(VENV)/.package $(VENV)/.tools
	STREAMGAUGE_KUBERNETES=1 $(BIN)/python -m pytest -m kubernetes tests/test_kubernetes_real.py $(ARGS)

fuzz: machine-build $(VENV)/.dependencies $(VENV)/.tools
	@$(BIN)/python tools/fuzz.py $(TARGET)

chart:
	helm lint --strict --kube-version 1.34.0 --values tests/data/chart-values.yaml deploy/helm/streamgauge
	tools/render-chart.sh render > tests/data/chart-rendered.yaml.new
	mv tests/data/chart-rendered.yaml.new tests/data/chart-rendered.yaml

lock:
	tools/lock-python.sh

audit:
	tools/audit.sh

NAME =
IN = $(NAME)-system
new-system: machine-build
	@"$$(tools/prepare-machine.sh python)" tools/new_system.py "$(NAME)" "$(IN)"

sbom: $(VENV)/.made
	@mkdir -p dist
	$(BIN)/python tools/sbom.py > dist/streamgauge.cdx.json

# Nothing of ours is built for it: clippy and mypy need dependencies alone. Both halves at once: pip and mypy want one core, and cargo leaves one for much of its time.
lint: machine-lint machine-build
	@tools/together "$(MAKE) lint-python" "$(MAKE) lint-rust"

lint-rust: machine-lint
	@tools/timed "cargo fmt" cargo fmt --all --check
	@tools/timed "cargo clippy" cargo clippy --locked --release --workspace --all-targets -- -D warnings

lint-python: machine-lint $(VENV)/.dependencies $(VENV)/.tools
	@tools/timed "ruff format" $(BIN)/ruff format --check .
	@tools/timed "ruff check" $(BIN)/ruff check .
	@tools/timed "mypy" $(BIN)/mypy
	@tools/timed "import-linter" env PYTHONPATH=python $(BIN)/lint-imports --no-cache

format: machine-lint $(VENV)/.tools
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf target fuzz/target fuzz/corpus fuzz/seeds fuzz/artifacts $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find python tests benches -name __pycache__ -type d -prune -exec rm -rf {} +

machine-build machine-lint machine-bench machine-test: machine-%:
	@tools/prepare-machine.sh $*

# Versions and checksums are those of requirements/, which tools/lock-python.sh makes of pyproject.toml.
INSTALL_LOCKED := $(PIP) install --quiet --require-hashes --requirement

# The environment with what builds the package. Builds are not isolated from it: pip would fetch maturin for each of them.
$(VENV)/.made: requirements/build.txt | machine-build
	@echo "making the virtual environment $(VENV)"
	@"$$(tools/prepare-machine.sh python)" -m venv --clear $(VENV)
	$(INSTALL_LOCKED) requirements/build.txt
	@touch $@

# What the Python package depends on.
$(VENV)/.dependencies: $(VENV)/.made requirements/run.txt | machine-build
	@tools/timed "pip: dependencies" $(INSTALL_LOCKED) requirements/run.txt
	@touch $@

# Both programs. cargo builds beside pip, which wants one core, and shows its progress; maturin finds its work done.
# The install is editable: a change in python/ counts at once, and one in crates/ with the next make.
ENVIRONMENT := $(VENV)/.dependencies
$(VENV)/.package: requirements/run.txt $(RUST_SOURCES) $(PACKAGE_SOURCES) | $(VENV)/.made
	@tools/together "$(MAKE) --silent $(ENVIRONMENT)" "tools/timed 'cargo build' cargo build --locked --release --package gauge"
	@PATH="$(CURDIR)/$(BIN):$$PATH" tools/timed "pip: streamgauge" $(PIP) install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.tools: $(VENV)/.made requirements/dev.txt | machine-build
	@tools/timed "pip: tools" $(INSTALL_LOCKED) requirements/dev.txt
	@touch $@
