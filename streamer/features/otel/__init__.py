"""Pushes metrics and spans to a collector of OpenTelemetry. Needs the extra ``otel``, except for `spans`."""
