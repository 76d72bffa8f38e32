"""Alerts by mail: at a real SMTP server, and no word of the address where it does not take them."""

from __future__ import annotations

import base64
import ipaddress
import socketserver
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.report.test_alerts import go_wrong, lake, told

from spillway.errors import InvalidValue
from spillway.report.alerts import DeliveryError, check_address, send


class PostOffice(socketserver.ThreadingTCPServer):
    """Speaks enough SMTP to take letters; answers RCPT as it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Counter)
        self.letters: list[tuple[list[str], bytes]] = []
        self.answer, self.heard = "250 fine", list[str]()
        self.certified: ssl.SSLContext | None = None
        self.encrypts_at_once = False
        self.heard_in_clear: list[str] = []

    def address(self, user: str = "") -> str:
        return f"smtp{'s' * self.encrypts_at_once}://{user}127.0.0.1:{self.server_address[1]}/?from=spillway@example.org&to=a@example.org&to=b@example.org"


class Counter(socketserver.StreamRequestHandler):
    server: PostOffice

    encrypted = False

    def encrypt(self) -> None:
        assert self.server.certified is not None
        self.connection = self.server.certified.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.encrypted = True

    def handle(self) -> None:
        try:
            if self.server.encrypts_at_once:
                self.encrypt()
            self.talk()
        except OSError:
            return  # whoever called does not trust the certificate

    def talk(self) -> None:
        self.say("220 here")
        readers: list[str] = []
        while line := self.rfile.readline().decode().strip():
            self.server.heard.append(line)
            self.server.heard_in_clear += [] if self.encrypted else [line]
            word = line.partition(" ")[0].upper()
            if word == "EHLO" and self.server.certified is not None:
                self.say("250-here\r\n" + ("250 AUTH PLAIN" if self.encrypted else "250 STARTTLS"))
            elif word == "STARTTLS":
                self.say("220 go on")
                self.encrypt()
            elif word == "AUTH":
                self.say("235 welcome")
            elif word == "RCPT":
                readers.append(line.partition(":")[2].strip("<> "))
                self.say(self.server.answer)
            elif word == "DATA":
                self.say("354 go on")
                letter = b""
                while (part := self.rfile.readline()) != b".\r\n":
                    letter += part
                self.server.letters.append((readers, letter))
                self.say("250 taken")
            elif word == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say("250 fine")

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@pytest.fixture
def office() -> Iterator[PostOffice]:
    with PostOffice() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_letter_tells_what_went_wrong_to_all_who_are_to_read_it_once(
    tmp_path: Path, office: PostOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLWAY_HOOK_ONCALL", office.address())
    settings, said = lake(tmp_path, {"hook": "oncall"}), list[str]()
    go_wrong(settings)
    assert told(settings, said) == 3
    assert told(settings, said) == 0
    ((readers, content),) = office.letters
    letter = message_from_bytes(content)
    assert readers == ["a@example.org", "b@example.org"]
    assert (letter["Subject"], letter["From"]) == ("Spillway: 3 alerts", "spillway@example.org")
    text = letter.get_payload(decode=True).decode()  # type: ignore[union-attr]
    assert "refusal: river: batch 1 of 2026-01-01: 3 of 13 records were refused" in text
    assert said == []


@pytest.mark.parametrize(("answer", "again"), [("450 later", True), ("550 never heard of", False)])
def test_who_is_not_taken_is_told_by_number_alone(office: PostOffice, answer: str, again: bool) -> None:
    office.answer = answer
    with pytest.raises(DeliveryError, match=f"^it answered {answer[:3]}$") as problem:
        send(office.address(), {"text": "one line"})
    assert problem.value.again is again
    assert office.letters == []


def test_a_password_does_not_cross_without_encryption(office: PostOffice) -> None:
    with pytest.raises(DeliveryError, match="a password must not cross without") as problem:
        send(office.address("me:very-secret@"), {"text": "one line"})
    assert "very-secret" not in str(problem.value)
    assert not [line for line in office.heard if line.startswith("AUTH")]


def certificate(folder: Path) -> Path:
    """A certificate of this machine that vouches for itself, and its key, in one file."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    here, now = ipaddress.ip_address("127.0.0.1"), datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(here)]), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    spelled = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path = folder / "office.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + spelled)
    return path


@pytest.mark.parametrize("at_once", [False, True], ids=["smtp", "smtps"])
@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "unknown"])
def test_a_password_and_a_letter_cross_encrypted_to_whom_the_machine_trusts_alone(
    tmp_path: Path, office: PostOffice, monkeypatch: pytest.MonkeyPatch, at_once: bool, trusted: bool
) -> None:
    pem = certificate(tmp_path)
    office.certified, office.encrypts_at_once = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), at_once
    office.certified.load_cert_chain(pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem if trusted else tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    if trusted:
        send(office.address("me:very-secret@"), {"text": "one line"})
        (said,) = [line for line in office.heard if line.startswith("AUTH")]
        assert base64.b64decode(said.split()[-1]) == b"\0me\0very-secret"
        assert len(office.letters) == 1
    else:
        with pytest.raises(DeliveryError, match="it cannot be reached") as problem:
            send(office.address("me:very-secret@"), {"text": "one line"})
        assert "very-secret" not in str(problem.value)
        assert office.letters == []
    words = [line.partition(" ")[0].upper() for line in office.heard_in_clear]
    assert words == ([] if at_once else ["EHLO", "STARTTLS"])


def test_a_line_in_an_address_makes_no_header(office: PostOffice) -> None:
    with pytest.raises(DeliveryError, match="no address of mail"):
        send(
            office.address().replace("a@example.org", "a@example.org%0d%0aBcc:%20c@example.org"),
            {"text": "x"},
        )
    assert office.letters == []


def test_nobody_there_is_told_without_the_address() -> None:
    with PostOffice() as gone:
        address = gone.address("me:very-secret@")
    with pytest.raises(DeliveryError, match=r"^it cannot be reached \(Connection refused\)$"):
        send(address, {"text": "one line"})


@pytest.mark.parametrize(
    "address", ["smtp://mail.example/", "smtp://mail.example/?to=a@b", "smtps://mail.example/?from=a@b"]
)
def test_who_writes_and_who_reads_must_be_said(address: str) -> None:
    with pytest.raises(InvalidValue, match="say who writes and who reads") as problem:
        check_address("oncall", address)
    assert "mail.example" not in str(problem.value)
