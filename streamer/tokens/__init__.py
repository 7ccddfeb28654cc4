"""What verifies the tokens of Requests (TAP): the interface, and a verifier for JWT."""
