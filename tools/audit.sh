#!/usr/bin/env bash
# Looks everything that is locked up in the lists of known vulnerabilities, and checks licences and sources (deny.toml).
#
#   tools/audit.sh              with the network: RustSec's advisories, PyPI's for Python
#   tools/audit.sh --offline    licences, bans and sources of the crates only; says what was not checked
#
# Needs cargo-deny (cargo install --locked cargo-deny) and pip-audit (pip install pip-audit, in an environment of its own).
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
need() { command -v "$1" >/dev/null || { echo "error: $1 is not on the PATH: $2" >&2; exit 2; }; }

case ${1:-} in
    '') offline=false ;;
    --offline) offline=true ;;
    *) usage ;;
esac
need cargo-deny "cargo install --locked cargo-deny"
if $offline; then
    cargo deny --locked --offline check licenses bans sources
    echo "not checked, for they need the network: known vulnerabilities of crates and of Python packages, and crates that were withdrawn"
    exit
fi
need pip-audit "pip install pip-audit, in an environment of its own"
failed=0
cargo deny --locked check || failed=1
for lock in requirements/*.txt; do
    # Strict: a package that the list does not know is not one without faults.
    echo "pip-audit: $lock"
    pip-audit --strict --require-hashes --disable-pip --requirement "$lock" || failed=1
done
exit "$failed"
