#!/usr/bin/env bash
# Writes requirements/*.txt anew from pyproject.toml: every Python package that is installed to build, run, or work on streamgauge, with its version and
# the SHA-256 of each of its files. They are for all platforms and every Python from 3.11 on, so one machine can make them for all.
#
#   tools/lock-python.sh              the newest versions that pyproject.toml allows
#   tools/lock-python.sh --keep       only what pyproject.toml changed; the other versions stay
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
    --keep) upgrade=() ;;
    '') upgrade=(--upgrade) ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
command -v uv >/dev/null || { echo "error: uv is not on the PATH, and it makes the locks: pip install uv" >&2; exit 2; }

# compile NAME INPUT ARGUMENT...: no address of a package index gets into a lock, because everyone has their own.
compile() {
    local name=$1 input=$2
    shift 2
    echo "requirements/$name.txt"
    uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
        "${upgrade[@]}" "$@" --output-file "requirements/$name.txt" "$input"
    sed -i "1i # Made by tools/lock-python.sh (make lock) from pyproject.toml." "requirements/$name.txt"
}

build_input=$(mktemp --suffix .in)
trap 'rm -f "$build_input"' EXIT
python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' >"$build_input"

# Development has everything, and thus settles the versions; the others take what of it they need.
compile dev pyproject.toml --all-extras
compile run pyproject.toml --constraint requirements/dev.txt
compile kubernetes pyproject.toml --extra kubernetes --constraint requirements/dev.txt
compile build "$build_input"
# A program of its own that tests call; what it shares with ours has ours' version.
compile ansible requirements/ansible.in --constraint requirements/dev.txt
sed -i '1s/pyproject.toml/requirements\/ansible.in/' requirements/ansible.txt
