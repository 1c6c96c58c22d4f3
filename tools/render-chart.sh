#!/usr/bin/env bash
# render-chart.sh render: what helm makes of the chart with the values of the tests, to standard output.
# render-chart.sh digest: of all files that it depends on; needs no helm.
set -euo pipefail
cd "$(dirname "$0")/.."
chart=deploy/helm/streamgauge values=tests/data/chart-values.yaml
digest() {
  find "$chart" "$values" -type f ! -name README.md | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d ' ' -f 1
}
case ${1:-} in
  digest) digest ;;
  render)
    command -v helm >/dev/null || { echo "render-chart.sh: helm is not on the PATH (https://helm.sh, version 3)" >&2; exit 2; }
    echo "# Made by make chart; of the chart $(digest)"
    helm template load "$chart" --namespace load --kube-version 1.34.0 --values "$values"
    ;;
  *) sed -n '2,3s/^# //p' "$0" >&2; exit 2 ;;
esac
