#!/usr/bin/env bash
# Looks whether this machine has what a make target needs, installs Debian packages that are missing when it runs as root on Debian, and
# otherwise says what is missing and how to get it.
#
#   tools/prepare-machine.sh build|lint|bench|test    exit status 0: go on; 2: something is missing without which nothing works
#   tools/prepare-machine.sh python                   prints the Python that the virtual environment is made with
#
# Needed to build: cargo, a C compiler (the linker of Rust programs), Python with venv. Wanted, and told when missing, because everything else
# works without them: Java and Maven (systems that run on the JVM), Chromium (tests of the report).
set -euo pipefail
cd "$(dirname "$0")/.."

python_min=3.11
java_min=17
rust_min=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

purpose=${1:-}
packages=()
missing=()
wanted=()

have() { command -v "$1" >/dev/null 2>&1; }

# at_least FOUND MINIMUM: compares dotted version numbers.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

on_debian() { [ -e /etc/debian_version ] && have apt-get; }
may_install() { on_debian && [ "$(id -u)" = 0 ]; }

python_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# The first Python that is new enough: the one asked for by PYTHON, or the usual names.
find_python() {
    local name version
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if have "$name" && version=$(python_version "$name") && at_least "$version" "$python_min"; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

python_has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

need_cargo() {
    local version
    if ! have cargo; then
        missing+=("Rust $rust_min or newer (cargo is not on the PATH): https://rustup.rs")
        return
    fi
    version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || version=
    if [ -z "$version" ]; then
        missing+=("Rust $rust_min or newer ($(command -v cargo) does not run; with rustup: rustup default stable)")
    elif ! at_least "$version" "$rust_min"; then
        missing+=("Rust $rust_min or newer ($(command -v cargo) is $version; with rustup: rustup update stable; without: https://rustup.rs)")
    fi
}

need_linker() {
    have cc && return
    packages+=(gcc libc6-dev)
    missing+=("a C compiler, which Rust links with (cc is not on the PATH): apt-get install gcc libc6-dev, dnf install gcc, ...")
}

need_python() {
    local python found
    if ! python=$(find_python); then
        packages+=(python3 python3-venv)
        found=$(have "${PYTHON:-python3}" && python_version "${PYTHON:-python3}") || found="not on the PATH"
        missing+=("Python $python_min or newer (${PYTHON:-python3} is $found): install it, or name one with make PYTHON=/path/to/python3")
    elif ! python_has_venv "$python"; then
        packages+=("python$(python_version "$python")-venv")
        missing+=("Python's venv module ($python lacks it): apt-get install python$(python_version "$python")-venv")
    fi
}

need_lint_tools() {
    local component
    for component in fmt:rustfmt clippy:clippy; do
        cargo "${component%%:*}" --version >/dev/null 2>&1 && continue
        if have rustup; then
            echo "adding the ${component##*:} component to the Rust toolchain"
            rustup component add "${component##*:}" && continue
        fi
        missing+=("${component##*:} of the Rust toolchain: rustup component add ${component##*:}")
    done
}

# The major version of the java on the PATH: 8 is "1.8.0_x", later ones are "17.0.1".
java_version() { java -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1; }

want_java() {
    local version
    if ! have java; then
        packages+=(default-jre-headless)
        wanted+=("Java $java_min or newer, for systems that run on the JVM such as Kafka: apt-get install default-jre-headless")
    else
        version=$(java_version)
        if ! at_least "${version:-0}" "$java_min"; then
            packages+=(default-jre-headless)
            wanted+=("Java $java_min or newer, for systems that run on the JVM such as Kafka ($(command -v java) is ${version:-unknown}): apt-get install openjdk-$java_min-jre-headless")
        fi
    fi
    if ! have mvn; then
        packages+=(maven)
        wanted+=("Maven, which fetches Kafka (mvn is not on the PATH): apt-get install maven")
    fi
}

want_rabbitmq() {
    [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] && return
    packages+=(rabbitmq-server)
    wanted+=("RabbitMQ, to be measured: apt-get install --no-install-recommends rabbitmq-server, and systemctl disable --now rabbitmq-server")
}

# Namespaces in which tests cut networks off, and a program that drops capabilities.
want_namespaces() {
    if ! have ip; then
        packages+=(iproute2)
        wanted+=("ip, with which tests make networks: apt-get install iproute2")
    fi
    if ! have unshare || ! have nsenter || ! have setpriv; then
        packages+=(util-linux)
        wanted+=("unshare, nsenter and setpriv, for tests with namespaces: apt-get install util-linux")
    fi
}

# Clients that are not ours.
want_clients() {
    if ! have kcat; then
        packages+=(kcat)
        wanted+=("kcat, with which tests read the reference log: apt-get install kcat")
    fi
    if ! have curl; then
        packages+=(curl)
        wanted+=("curl, with which tests speak to a worker over TLS: apt-get install curl")
    fi
}

want_chromium() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        have "$name" && return
    done
    packages+=(chromium)
    wanted+=("Chromium, in which tests open the report: apt-get install chromium")
}

want_prometheus() {
    have prometheus && return
    packages+=(prometheus)
    wanted+=("Prometheus, with which tests read a run's metrics: apt-get install --no-install-recommends prometheus, and systemctl disable --now prometheus")
}

# npm fetches axe-core, which looks at pages for what people cannot read (tests/browser_tools).
want_npm() {
    have npm && return
    packages+=(npm)
    wanted+=("npm, which fetches axe-core for tests of the report: apt-get install npm")
}

want_groff() {
    have groff && return
    packages+=(groff-base)
    wanted+=("groff, which reads the man pages in their test: apt-get install groff-base")
}

# look PURPOSE: fills the three lists.
look() {
    packages=() missing=() wanted=()
    need_cargo
    need_linker
    need_python
    case $1 in
        lint) [ ${#missing[@]} -gt 0 ] || need_lint_tools ;;
        bench) want_java && want_rabbitmq ;;
        test) want_java && want_rabbitmq && want_namespaces && want_clients && want_chromium && want_npm && want_groff && want_prometheus ;;
    esac
}

# All at once, and one by one when that fails, so that one package that cannot be had does not keep the others away.
install_packages() {
    local package
    echo "installing Debian packages: $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null >&2 || echo "warning: apt-get update failed (its messages are above)" >&2
    apt_install "$@" && return
    [ $# -gt 1 ] || return 0
    for package in "$@"; do
        apt_install "$package" || echo "warning: the Debian package $package could not be installed (apt-get's messages are above)" >&2
    done
}

apt_install() { apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2; }

case $purpose in
    python)
        find_python
        exit
        ;;
    build | lint | bench | test) ;;
    *)
        echo "error: tools/prepare-machine.sh takes one of build, lint, bench, test, python; not '$purpose'" >&2
        exit 2
        ;;
esac

look "$purpose"
if [ ${#packages[@]} -gt 0 ] && may_install; then
    install_packages "${packages[@]}"
    # Packages bring services, which are not wanted: streamgauge starts nodes of its own. Only a service that came just now is stopped.
    for service in rabbitmq-server prometheus; do
        case " ${packages[*]} " in
            *" $service "*) have systemctl && systemctl disable --now "$service" >/dev/null 2>&1 || true ;;
        esac
    done
    hash -r
    look "$purpose"
fi
if [ ${#wanted[@]} -gt 0 ]; then
    echo "note: missing here, and what needs it will say so or be skipped:" >&2
    printf '  - %s\n' "${wanted[@]}" >&2
fi
if [ ${#missing[@]} -gt 0 ]; then
    echo "error: this machine lacks what 'make $purpose' needs:" >&2
    printf '  - %s\n' "${missing[@]}" >&2
    exit 2
fi
