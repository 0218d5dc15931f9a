# SPDX-License-Identifier: Apache-2.0
"""A nats-server that asks who one is: certificates, users, nkeys and credentials files, made anew for each run."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nkeys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = dt.timedelta(days=1)


def make_certificates(folder: Path) -> None:
    """``ca.pem``, and a server's and a client's certificate that it signed, each with its ``.key``."""
    authority = ec.generate_private_key(ec.SECP256R1())
    for name in ("ca", "server", "client"):
        own = authority if name == "ca" else ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(name, own, authority)
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        private = own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / f"{name}.key").write_bytes(private)


def _certificate(name: str, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    is_ca = name == "ca"
    now = dt.datetime.now(dt.timezone.utc)
    use = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=is_ca, crl_sign=is_ca, decipher_only=False, **use),
            critical=True,
        )
    )
    if not is_ca:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return made.sign(signer, hashes.SHA256())


@dataclass(frozen=True)
class Key:
    """An nkey: its seed, its public name, and what signs with it."""

    seed: str
    public: str
    pair: Any

    @classmethod
    def make(cls, prefix: int) -> Key:
        seed = nkeys.encode_seed(os.urandom(32), prefix)
        pair = nkeys.from_seed(bytearray(seed))
        return cls(bytes(seed).decode(), bytes(pair.public_key).decode(), pair)


def user_key() -> Key:
    """An nkey of a user."""
    return Key.make(nkeys.PREFIX_BYTE_USER)


def make_credentials(file: Path) -> str:
    """Write a credentials file as ``nsc`` would; return the server's configuration that knows its user."""
    operator = Key.make(nkeys.PREFIX_BYTE_OPERATOR)
    account = Key.make(nkeys.PREFIX_BYTE_ACCOUNT)
    user = user_key()
    unlimited = dict.fromkeys(("subs", "data", "payload"), -1)
    wide = unlimited | dict.fromkeys(("imports", "exports", "conn", "leaf"), -1) | {"wildcards": True}
    operator_jwt = _jwt(operator, operator.public, "operator", {})
    account_jwt = _jwt(operator, account.public, "account", {"limits": wide})
    user_jwt = _jwt(account, user.public, "user", {"pub": {}, "sub": {}, **unlimited})
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    return f"operator: {operator_jwt}\nresolver: MEMORY\nresolver_preload: {{ {account.public}: {account_jwt} }}\n"


def _jwt(signer: Key, subject: str, kind: str, claims: dict[str, Any]) -> str:
    header = {"typ": "JWT", "alg": "ed25519-nkey"}
    body = {
        "jti": kind,
        "iat": 1_700_000_000,
        "iss": signer.public,
        "name": kind,
        "sub": subject,
        "nats": {**claims, "type": kind, "version": 2},
    }
    text = ".".join(_base64(json.dumps(part).encode()) for part in (header, body))
    return f"{text}.{_base64(signer.pair.sign(text.encode()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
