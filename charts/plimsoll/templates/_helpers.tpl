{{/* Names: the release's, with the chart's name unless the release carries it already. */}}
{{- define "plimsoll.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "plimsoll.fullname" -}}
{{- $name := include "plimsoll.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Labels that never change over a release's life: a Deployment's selector. Call with (dict "root" $ "component" "webhook"). */}}
{{- define "plimsoll.selectorLabels" -}}
app.kubernetes.io/name: {{ include "plimsoll.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "plimsoll.labels" -}}
{{ include "plimsoll.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: plimsoll
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "plimsoll.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- define "plimsoll.webhookSecret" -}}
{{- default (printf "%s-webhook-tls" (include "plimsoll.fullname" .)) .Values.certificates.secretName }}
{{- end }}

{{/* Whether cert-manager issues the webhook's certificate: not for a webhook that runs elsewhere. */}}
{{- define "plimsoll.usesCertManager" -}}
{{- if and .Values.webhook.deploy (eq .Values.certificates.source "certManager") }}true{{ end }}
{{- end }}

{{/* How the API server reaches the webhook; call with (dict "root" $ "path" "/..."). */}}
{{- define "plimsoll.clientConfig" -}}
{{- $webhook := .root.Values.webhook }}
{{- if $webhook.url }}
url: {{ printf "%s%s" $webhook.url .path | quote }}
{{- else }}
service:
  name: {{ include "plimsoll.fullname" .root }}-webhook
  namespace: {{ .root.Release.Namespace }}
  path: {{ .path }}
  port: 443
{{- end }}
{{- with $webhook.caBundle }}
caBundle: {{ b64enc . }}
{{- end }}
{{- end }}

{{/* Which namespaces the webhooks see: never those that hold the cluster and Plimsoll itself together. */}}
{{- define "plimsoll.namespaceSelector" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: [kube-system, kube-node-lease, {{ .Release.Namespace }}]
  {{- with .Values.webhook.namespaceSelector.matchExpressions }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.webhook.namespaceSelector.matchLabels }}
matchLabels:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The restricted Pod Security Standard. */}}
{{- define "plimsoll.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "plimsoll.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Health on the port named "ops"; startup has a minute, for a registry of many GPU nodes to be listed. */}}
{{- define "plimsoll.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: ops}
  periodSeconds: 2
  failureThreshold: 30
readinessProbe:
  httpGet: {path: /readyz, port: ops}
  periodSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: ops}
  periodSeconds: 20
  failureThreshold: 3
{{- end }}

{{/* What both Deployments' pods have in common; call with (dict "root" $ "component" "webhook" "values" .Values.webhook). */}}
{{- define "plimsoll.podPlacement" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
