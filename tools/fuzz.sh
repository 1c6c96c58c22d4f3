#!/usr/bin/env bash
# Coverage-guided fuzzing of every parser that meets the network or a file of someone else (fuzz/README.md).
#
#   tools/fuzz.sh              all targets, FUZZ_SECONDS each (default 5), as many at once as there are cores
#   tools/fuzz.sh TARGET...    these
#
# A run begins with the same random numbers each time, so that what fails, fails again; FUZZ_SEED=0 takes others.
#
# Works with stable Rust: the instrumentation is LLVM's own pass, and libFuzzer comes with the crate libfuzzer-sys. Parsers of the lab (lab-*) are
# fuzzed by Atheris, which is libFuzzer for Python, in the environment that make has made.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${FUZZ_SECONDS:-5}
jobs=${FUZZ_JOBS:-$(nproc)}
triple=$(rustc -vV | sed -n 's/^host: //p')
program=target/$triple/release/gauge-fuzz
flags=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
)
# Only what runs later is instrumented: with --target, build scripts and macros are left alone.
RUSTFLAGS="${flags[*]}" cargo build --release --locked --quiet --target "$triple"

# Seeds are made by the encoders of the crates, or are what ships with the lab: none of them is in git.
lab=(env PYTHONPATH=../python ../.venv/bin/python lab.py)
FUZZ_TARGET=seeds "$program"
FUZZ_TARGET=seeds "${lab[@]}"
mapfile -t known < <(FUZZ_TARGET=list "$program" && FUZZ_TARGET=list "${lab[@]}")
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=("${known[@]}")
for target in "${targets[@]}"; do
    if ! printf '%s\n' "${known[@]}" | grep -qxF -- "$target"; then
        echo "fuzz: there is no target '$target': expected one of ${known[*]}" >&2
        exit 2
    fi
done

# One target. Its seeds, what was found before, and what an earlier call has collected (corpus/, not in git) are where it begins.
run() {
    local target=$1 log status=0 command=("$program") memory_mb=1024
    # The lab's libraries alone take half a gigabyte.
    if [[ $target == lab-* ]]; then command=("${lab[@]}") memory_mb=2048; fi
    mkdir -p "corpus/$target" artifacts
    log=artifacts/$target.log
    FUZZ_TARGET=$target timeout --kill-after=10s "$((seconds + 120))" "${command[@]}" \
        -seed="${FUZZ_SEED:-1}" -max_total_time="$seconds" -timeout=5 -rss_limit_mb="$memory_mb" -max_len=65536 -artifact_prefix="artifacts/$target-" \
        "corpus/$target" $(ls -d "seeds/$target" "regressions/$target" 2>/dev/null || true) >"$log" 2>&1 || status=$?
    local covered executed
    covered=$(grep -o 'cov: [0-9]*' "$log" | tail -1 | tr -dc 0-9 || true)
    executed=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log")
    if [ "$status" -ne 0 ]; then
        tail -n 25 "$log" >&2
        echo "fuzz: $target failed with exit status $status; its input is in fuzz/artifacts (fuzz/README.md says what to do with it)" >&2
        return 1
    fi
    # A target that reaches nothing proves nothing.
    if [ "${covered:-0}" -lt 10 ]; then
        echo "fuzz: $target covered ${covered:-0} edges only: the instrumentation or the target is broken; see fuzz/$log" >&2
        return 1
    fi
    echo "fuzz: $target: ${executed:-0} inputs, $covered edges"
}

failed=0
for target in "${targets[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || failed=1; done
    run "$target" &
done
while [ -n "$(jobs -p)" ]; do wait -n || failed=1; jobs >/dev/null; done
exit "$failed"
