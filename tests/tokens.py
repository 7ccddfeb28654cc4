"""An issuer of JSON Web Tokens for tests: keys, the file with the public ones, and tokens good and bad."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "gateway.veh1"
DOORS_URI = "//veh1/B/1/7"

_KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())


def private_key(algorithm: str) -> Any:
    return _KEYS["RS256" if algorithm[:2] in ("RS", "PS") else algorithm]


def jwk(key: Any, **more: Any) -> dict[str, Any]:
    """The public part of a private key."""
    public = key.public_key()
    if isinstance(key, rsa.RSAPrivateKey):
        text = RSAAlgorithm.to_jwk(public)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        text = ECAlgorithm.to_jwk(public)
    else:
        text = OKPAlgorithm.to_jwk(public)
    return {name: value for name, value in json.loads(text).items() if name != "key_ops"} | more


def write_keys(path: Path, *keys: Mapping[str, Any]) -> Path:
    """A file with these keys; without any, with one for each algorithm, called as the algorithm is."""
    listed = list(keys) or [jwk(key, kid=name) for name, key in _KEYS.items()]
    path.write_text(json.dumps({"keys": listed}))
    return path


def token(now_s: float, algorithm: str = "ES256", key: Any = None, kid: str | None = "", **claims: Any) -> str:
    """A token that is good for `DOORS_URI` for a minute. A claim that is None is left out."""
    known = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(now_s) + 60, "sub": "driver-1", "scope": [DOORS_URI]} | claims
    name = ("RS256" if algorithm[:2] in ("RS", "PS") else algorithm) if kid == "" else kid
    return jwt.encode(
        {claim: value for claim, value in known.items() if value is not None},
        private_key(algorithm) if key is None else key,
        algorithm=algorithm,
        headers={} if name is None else {"kid": name},
    )
