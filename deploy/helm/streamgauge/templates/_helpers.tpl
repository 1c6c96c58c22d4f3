{{- /* What all templates have in common. */ -}}

{{- define "streamgauge.workers" -}}
{{ printf "%s-workers" .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}

{{- define "streamgauge.lab" -}}
{{ printf "%s-lab" .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}

{{- define "streamgauge.identity" -}}
{{ .Values.identity.existingSecret | default (include "streamgauge.workers" .) }}
{{- end -}}

{{- define "streamgauge.labels" -}}
app.kubernetes.io/name: streamgauge
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- /* What finds the workers' pods, and nothing else. */ -}}
{{- define "streamgauge.selector" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: worker
{{- end -}}

{{- define "streamgauge.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "streamgauge.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end -}}
