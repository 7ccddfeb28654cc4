{{- define "ustreamer.name" -}}
{{- $name := printf "%s-%s" .Release.Name .Chart.Name }}
{{- if contains .Chart.Name .Release.Name }}{{ $name = .Release.Name }}{{ end }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "ustreamer.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ustreamer.labels" -}}
{{ include "ustreamer.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "ustreamer.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* A key of a section of the configuration, as text. Empty if it, or the section, is not there or null. */}}
{{- define "ustreamer.key" -}}
{{- $section := get (index . 0) (index . 1) }}
{{- if kindIs "map" $section }}
{{- $value := get $section (index . 2) }}
{{- if not (kindIs "invalid" $value) }}{{ $value }}{{ end }}
{{- end }}
{{- end }}

{{/* What the configuration file says, as JSON. It is refused where Kubernetes could not run it. */}}
{{- define "ustreamer.config" -}}
{{- $config := fromYaml (required "config: expected the streamer's configuration: --set-file config=streamer.yaml" .Values.config) }}
{{- if hasKey .Values.files "streamer.yaml" }}{{ fail "files: expected other names than streamer.yaml, which is that of config" }}{{ end }}
{{- if hasKey $config "Error" }}{{ fail (printf "config: expected YAML: %s" $config.Error) }}{{ end }}
{{- if .Values.config }}{{/* else `helm lint`, which goes on after what is missing */}}
{{- $listen := include "ustreamer.key" (list $config "metrics" "listen") }}
{{- if not (regexMatch "^(0\\.0\\.0\\.0|\\[::\\]):[1-9][0-9]*$" $listen) }}
{{- fail (printf "config: metrics.listen: expected 0.0.0.0:9464, because probes come from outside the container; found %q" $listen) }}
{{- end }}
{{- $journal := include "ustreamer.key" (list $config "journal" "path") }}
{{- if not (hasPrefix "/var/lib/streamer/" $journal) }}
{{- fail (printf "config: journal.path: expected a file below /var/lib/streamer, the volume; found %q" $journal) }}
{{- end }}
{{- range list (list "trace" "path") (list "log" "audit") }}
{{- $path := include "ustreamer.key" (prepend . $config) }}
{{- if and $path (not (hasPrefix "/var/lib/streamer/" $path)) }}
{{- fail (printf "config: %s: expected a path below /var/lib/streamer, the volume; found %q" (join "." .) $path) }}
{{- end }}
{{- end }}
{{- if .Values.pair.enabled }}
{{- if gt (int .Values.replicas) 1 }}{{ fail "replicas: expected 1 with pair.enabled: a pair has two pods anyway" }}{{ end }}
{{- if not .Values.pair.secret }}{{ fail "pair.secret: expected the name of a Secret with the entry key" }}{{ end }}
{{- if hasKey $config "pair" }}{{ fail "config: pair: expected no such section with pair.enabled: the chart writes it" }}{{ end }}
{{- if contains "${HOSTNAME" .Values.config }}{{ fail "config: ${HOSTNAME}: the pods of a pair have the same authority and client ids" }}{{ end }}
{{- range tuple "listen" "connect" "key_file" }}
{{- if hasKey $.Values.pair.options . }}{{ fail (printf "pair.options: expected no %s: the chart writes it" .) }}{{ end }}
{{- end }}
{{- else if gt (int .Values.replicas) 1 }}
{{- if not (contains "${HOSTNAME" (toString $config.authority)) }}
{{- fail "replicas: more than one need authorities of their own: authority: ${HOSTNAME} in config" }}
{{- end }}
{{- if not (regexMatch "(?m)\\bshare:" .Values.config) }}
{{- fail "replicas: more than one divide what a broker has: expected share in the options of its endpoint in config" }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $config }}
{{- end }}

{{/* The configuration file of one pod of a pair, by its number. */}}
{{- define "ustreamer.member" -}}
{{- $root := index . 0 }}
{{- $config := include "ustreamer.config" $root | fromJson }}
{{- $host := include "ustreamer.key" (list $config "metrics" "listen") | splitList ":" | initial | join ":" }}
{{- $name := include "ustreamer.name" $root }}
{{- $place := dict "connect" (printf "%s-0.%s:%d" $name $name (int $root.Values.pair.port)) }}
{{- if eq (index . 1) 0 }}{{ $place = dict "listen" (printf "%s:%d" $host (int $root.Values.pair.port)) }}{{ end }}
{{- $pair := merge $place (dict "key_file" "/run/secrets/pair/key") $root.Values.pair.options }}
{{- $text := printf "%s\npair: %s\n" $root.Values.config (toJson $pair) }}
{{- if $root.Values.config }}
{{- if not (hasKey (fromYaml $text) "pair") }}{{ fail "config: expected YAML to which a section can be added: no braces around it, no document end" }}{{ end }}
{{- end }}
{{- $text }}
{{- end }}

{{- define "ustreamer.port" -}}
{{- /* Of `helm lint` without a configuration, which reports what is missing and goes on. */}}
{{- include "ustreamer.key" (list (include "ustreamer.config" . | fromJson) "metrics" "listen") | default ":9464" | splitList ":" | last }}
{{- end }}

{{- define "ustreamer.scheme" -}}
{{ if include "ustreamer.key" (list (include "ustreamer.config" . | fromJson) "metrics" "tls") }}https{{ else }}http{{ end }}
{{- end }}

{{- define "ustreamer.grace" -}}
{{- $given := include "ustreamer.key" (list (include "ustreamer.config" . | fromJson) "shutdown" "drain_s") }}
{{- $drain := eq $given "" | ternary "20" $given | ceil | int }}
{{- $given = .Values.terminationGracePeriodSeconds }}
{{- if and $given (lt (int $given) (add $drain 15 | int)) }}
{{- fail (printf "terminationGracePeriodSeconds: expected at least shutdown.drain_s and 15 more: %d" (add $drain 15)) }}
{{- end }}
{{- $given | default (add $drain 40) | int }}
{{- end }}
