"""Certificates made with openssl's command line: good, expired, for another host, unknown."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

_CONFIG = """
[ca]
default_ca = here
[here]
dir = {folder}
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[local]
subjectAltName = DNS:localhost,IP:127.0.0.1
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[elsewhere]
subjectAltName = DNS:elsewhere.example
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


class Certificates:
    """Contexts for both ends, from the files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def client(self) -> ssl.SSLContext:
        """Trusts the authority."""
        return ssl.create_default_context(cafile=self._folder / "ca.pem")

    def server(self, name: str = "good", *, alpn: list[str] | None = None) -> ssl.SSLContext:
        """Shows the certificate of that name: good, expired, elsewhere or unknown."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / f"{name}.pem", self._folder / "key.pem")
        context.set_alpn_protocols(alpn or ["h2", "http/1.1"])
        return context


def make_certificates(folder: Path) -> Certificates:
    """Make them all, of one key."""
    config = folder / "openssl.cnf"
    config.write_text(_CONFIG.format(folder=folder))
    (folder / "index.txt").touch()
    (folder / "index.txt.attr").write_text("unique_subject = no\n")
    (folder / "serial").write_text("1000\n")
    _openssl(folder, "ecparam -name prime256v1 -genkey -noout -out key.pem")
    _openssl(folder, "req -new -key key.pem -subj /CN=test -config openssl.cnf -out csr.pem")
    authority = "req -x509 -new -key key.pem -subj /CN=authority -days 2 -config openssl.cnf"
    _openssl(folder, f"{authority} -extensions authority -out ca.pem")
    _openssl(folder, f"{authority} -extensions local -out unknown.pem")
    sign = "ca -batch -notext -config openssl.cnf -cert ca.pem -keyfile key.pem -in csr.pem"
    _openssl(folder, f"{sign} -days 2 -extensions local -out good.pem")
    _openssl(folder, f"{sign} -days 2 -extensions elsewhere -out elsewhere.pem")
    past = "-startdate 20200101000000Z -enddate 20200201000000Z"
    _openssl(folder, f"{sign} {past} -extensions local -out expired.pem")
    return Certificates(folder)


def _openssl(folder: Path, arguments: str) -> None:
    try:
        subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs the openssl command")
    except subprocess.CalledProcessError as error:
        raise AssertionError(error.stderr.decode()) from error
