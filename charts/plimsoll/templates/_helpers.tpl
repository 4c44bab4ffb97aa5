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

{{/* Another name for each source, so that an upgrade may change it: a Secret of cert-manager's is not Helm's to adopt. */}}
{{- define "plimsoll.webhookSecret" -}}
{{- $suffix := ternary "certificates" "tls" (eq .Values.certificates.source "builtIn") }}
{{- default (printf "%s-webhook-%s" (include "plimsoll.fullname" .) $suffix) .Values.certificates.secretName }}
{{- end }}

{{/* Where the webhook's certificate comes from; empty for a webhook that runs elsewhere. */}}
{{- define "plimsoll.certificateSource" -}}
{{- if .Values.webhook.deploy }}{{ .Values.certificates.source }}{{ end }}
{{- end }}

{{/* The webhook's name in the cluster, as the API server calls it. */}}
{{- define "plimsoll.webhookHost" -}}
{{ include "plimsoll.fullname" . }}-webhook.{{ .Release.Namespace }}.svc
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
    values: {{ concat (list "kube-system" "kube-node-lease" .Release.Namespace) .Values.provisioning.excludedNamespaces | toJson }}
  {{- with .Values.rbac.namespaces }}
  - key: kubernetes.io/metadata.name
    operator: In
    values: {{ toJson . }}
  {{- end }}
  {{- with .Values.webhook.namespaceSelector.matchExpressions }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.webhook.namespaceSelector.matchLabels }}
matchLabels:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
The webhook that sizes TrainingJobs in namespaces whose label plimsoll.dev/mode is .mode, or, without .mode, is none of the modes: its
path says what jobs without a mode get.
*/}}
{{- define "plimsoll.trainingJobWebhook" -}}
{{- $suffix := ternary (printf "/%s" (lower (default "" .mode))) "" (hasKey . "mode") }}
- name: {{ .name }}.trainingjobs.plimsoll.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  matchPolicy: Equivalent
  # Another webhook may change the job after ours; ours gives the same answer to the same job.
  reinvocationPolicy: IfNeeded
  failurePolicy: {{ .root.Values.webhook.mutatingFailurePolicy }}
  timeoutSeconds: {{ .root.Values.webhook.timeoutSeconds }}
  clientConfig:
    {{- include "plimsoll.clientConfig" (dict "root" .root "path" (printf "/mutate-plimsoll-dev-v1alpha1-trainingjob%s" $suffix)) | trim | nindent 4 }}
  rules:
    - apiGroups: [plimsoll.dev]
      apiVersions: [v1alpha1]
      resources: [trainingjobs]
      # UPDATE too: `kubectl apply` of the same file writes the user's count again.
      operations: [CREATE, UPDATE]
      scope: Namespaced
  namespaceSelector:
    {{- $selector := fromYaml (include "plimsoll.namespaceSelector" .root) }}
    {{- $expression := dict "key" "plimsoll.dev/mode" "operator" "NotIn" "values" (list "Auto" "Initial" "Off") }}
    {{- if .mode }}
    {{- $expression = dict "key" "plimsoll.dev/mode" "operator" "In" "values" (list .mode) }}
    {{- end }}
    {{- $_ := set $selector "matchExpressions" (append $selector.matchExpressions $expression) }}
    {{- toYaml $selector | nindent 4 }}
  objectSelector:
    {{- toYaml .root.Values.webhook.objectSelector | nindent 4 }}
  matchConditions:
    - name: not-opted-out
      expression: >-
        !has(object.metadata.annotations) ||
        !("plimsoll.dev/provisioning" in object.metadata.annotations) ||
        object.metadata.annotations["plimsoll.dev/provisioning"] != "disabled"
    - name: not-being-deleted
      expression: '!has(object.metadata.deletionTimestamp)'
{{- end }}

{{/*
The webhook of workloads of other kinds, in namespaces where they are sized (.path /mutate-workload), or get advice. An outage must never stop
them, so failurePolicy is Ignore whatever it is for TrainingJobs. Kinds that the cluster does not have cost nothing. With plugin, the
one of TrainJobs that have no family but name Plimsoll in Trainer's annotation, by which no selector can choose.
*/}}
{{- define "plimsoll.workloadWebhook" -}}
- name: {{ .name }}.{{ if .plugin }}trainjobs{{ else }}workloads{{ end }}.plimsoll.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  matchPolicy: Equivalent
  reinvocationPolicy: IfNeeded
  failurePolicy: Ignore
  timeoutSeconds: {{ .root.Values.webhook.timeoutSeconds }}
  clientConfig:
    {{- include "plimsoll.clientConfig" (dict "root" .root "path" .path) | trim | nindent 4 }}
  rules:
    {{- if not .plugin }}
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE], scope: Namespaced}
    - {apiGroups: [batch], apiVersions: [v1], resources: [jobs], operations: [CREATE], scope: Namespaced}
    - {apiGroups: [jobset.x-k8s.io], apiVersions: ["*"], resources: [jobsets], operations: [CREATE], scope: Namespaced}
    - {apiGroups: [kubeflow.org], apiVersions: [v1], resources: [pytorchjobs], operations: [CREATE], scope: Namespaced}
    - {apiGroups: [leaderworkerset.x-k8s.io], apiVersions: [v1], resources: [leaderworkersets], operations: [CREATE], scope: Namespaced}
    - {apiGroups: [ray.io], apiVersions: [v1], resources: [rayclusters, rayjobs], operations: [CREATE], scope: Namespaced}
    {{- end }}
    - {apiGroups: [trainer.kubeflow.org], apiVersions: ["*"], resources: [trainjobs], operations: [CREATE], scope: Namespaced}
  namespaceSelector:
    {{- $selector := fromYaml (include "plimsoll.namespaceSelector" .root) }}
    {{- $mode := dict "key" "plimsoll.dev/mode" }}
    {{- if eq .root.Values.provisioning.workloadMode "Off" }}
    {{- $_ := set $mode "operator" (ternary "In" "NotIn" (eq .path "/mutate-workload")) }}
    {{- $_ := set $mode "values" (list "Auto" "Initial") }}
    {{- else }}
    {{- $_ := set $mode "operator" (ternary "NotIn" "In" (eq .path "/mutate-workload")) }}
    {{- $_ := set $mode "values" (list "Off") }}
    {{- end }}
    {{- $_ := set $selector "matchExpressions" (append $selector.matchExpressions $mode) }}
    {{- toYaml $selector | nindent 4 }}
  objectSelector:
    matchExpressions:
      - {key: plimsoll.dev/family, operator: {{ if .plugin }}DoesNotExist{{ else }}Exists{{ end }}}
  matchConditions:
    {{- if .plugin }}
    - name: names-plimsoll
      expression: >-
        has(object.metadata.annotations) &&
        "trainer.kubeflow.org/autoconf-plugin" in object.metadata.annotations &&
        object.metadata.annotations["trainer.kubeflow.org/autoconf-plugin"] == "plimsoll"
    {{- end }}
    - name: not-opted-out
      expression: >-
        !has(object.metadata.annotations) ||
        !("plimsoll.dev/provisioning" in object.metadata.annotations) ||
        object.metadata.annotations["plimsoll.dev/provisioning"] != "disabled"
    # Such as the pods of a Job: the Job is sized.
    - name: not-made-by-another
      expression: >-
        !has(object.metadata.ownerReferences) ||
        !object.metadata.ownerReferences.exists(owner, has(owner.controller) && owner.controller)
{{- end }}

{{/* Arguments of both processes. */}}
{{- define "plimsoll.policyArguments" -}}
- --training-job-mode={{ .Values.provisioning.trainingJobMode }}
- --advice-only={{ .Values.provisioning.adviceOnly }}
- --min-share-of-asked={{ .Values.provisioning.minShareOfAsked }}
{{- range $name, $on := .Values.featureGates }}
- --feature-gates={{ $name }}={{ $on }}
{{- end }}
{{- range .Values.rbac.namespaces }}
- --namespace={{ . }}
{{- end }}
{{- end }}

{{/* Of both processes: where health and metrics are. */}}
{{- define "plimsoll.opsArguments" -}}
- --ops-address=0.0.0.0
- --ops-port=8081
- --metrics-secure={{ .Values.metrics.secure }}
{{- if .Values.metrics.secure }}
- --metrics-port=8443
{{- end }}
{{- end }}

{{- define "plimsoll.opsContainerPorts" -}}
- {name: ops, containerPort: 8081}
{{- if .Values.metrics.secure }}
- {name: metrics, containerPort: 8443}
{{- end }}
{{- end }}

{{- define "plimsoll.opsServicePorts" -}}
{{- if .Values.metrics.secure -}}
- {name: ops, port: 8081, targetPort: ops}
- {name: metrics, port: 8443, targetPort: metrics}
{{- else -}}
- {name: metrics, port: 8081, targetPort: ops}
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

{{/* What all pods have in common; call with (dict "root" $ "component" "webhook" "values" .Values.webhook). */}}
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

{{/* Called with the same. */}}
{{- define "plimsoll.spread" -}}
topologySpreadConstraints:
  {{- with .values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "plimsoll.selectorLabels" $ | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end }}

{{/* Called with the same. One replica alone could never be evicted. */}}
{{- define "plimsoll.podDisruptionBudget" -}}
{{- if and .values.podDisruptionBudget.enabled (gt (int .values.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "plimsoll.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "plimsoll.labels" . | nindent 4 }}
spec:
  minAvailable: {{ .values.podDisruptionBudget.minAvailable }}
  # Pods that are not ready hold up no drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "plimsoll.selectorLabels" . | nindent 6 }}
{{- end }}
{{- end }}

{{/* Called with the same: who may reach the pods, and what they may reach. */}}
{{- define "plimsoll.networkPolicy" -}}
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "plimsoll.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "plimsoll.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "plimsoll.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress{{ if .root.Values.networkPolicy.egress }}, Egress{{ end }}]
  ingress:
    {{- if eq .component "webhook" }}
    - ports: [{protocol: TCP, port: https}]
      {{- with .root.Values.networkPolicy.webhookFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    - ports: [{protocol: TCP, port: ops}{{ if .root.Values.metrics.secure }}, {protocol: TCP, port: metrics}{{ end }}]
      {{- with .root.Values.networkPolicy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
        # The pod of `helm test`.
        - podSelector:
            matchLabels:
              {{- include "plimsoll.selectorLabels" (dict "root" $.root "component" "test") | nindent 14 }}
      {{- end }}
  {{- with .root.Values.networkPolicy.egress }}
  egress:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
