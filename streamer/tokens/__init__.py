"""Verifiers for the tokens of Requests (TAP): the plugin interface, and one for JWT."""
