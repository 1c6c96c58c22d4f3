#!/usr/bin/env bash
# worker-rootfs.sh GAUGE DIR: the root file system of a worker's image, without a container engine: gauge and the shared
# libraries that it is linked with. For image tools that pack a folder; deploy/Containerfile makes the same on distroless.
set -euo pipefail
(($# == 2)) || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
gauge=$1 root=$2
[[ -x $gauge ]] || { echo "worker-rootfs.sh: $gauge: no such program; expected the gauge binary" >&2; exit 2; }
[[ ! -e $root ]] || { echo "worker-rootfs.sh: $root exists: expected a folder that is not there yet" >&2; exit 2; }
install -D -m 755 "$gauge" "$root/usr/bin/gauge"
mkdir -p "$root/etc/streamgauge" "$root/tmp"
# Lines are NAME => PATH (ADDRESS), and the loader's PATH (ADDRESS).
ldd "$gauge" | sed -nE 's/^.*[[:space:]](\/[^ ]+) \(0x[0-9a-f]+\)$/\1/p' | sort -u | while read -r library; do
  install -D -m 755 "$(readlink -f "$library")" "$root$library"
done
# Names of brokers are looked up; without this file the C library asks no name server before it has looked for local services.
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
