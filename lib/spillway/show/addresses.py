"""Where alerts go: a web address that takes JSON, or a mail server that takes a letter.

    https://chat.example/services/...           POST, JSON
    smtp://user:word@mail.example:587/?from=spillway@example.org&to=oncall@example.org&to=me@example.org
    smtps://mail.example/?from=...&to=...       the same, encrypted from the first byte on

With `smtp` the connection is encrypted where the server offers it, and has to be before a user and a password cross.
What goes wrong is told in words that hold nothing of an address: it may be a secret.
"""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.error
import urllib.request
from email.message import EmailMessage
from http.client import HTTPException
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from spillway.errors import Refused, SpillwayError
from spillway.settings import HOOK_PREFIX

TIMEOUT_SECONDS = 10.0
WEB, MAIL = ("http", "https"), ("smtp", "smtps")


class NotTold(SpillwayError):
    """An address did not take what it was sent; `again` where it may the next time."""

    def __init__(self, why: str, again: bool = True) -> None:
        self.again = again
        super().__init__(why)


def checked_address(hook: str, found: str | None) -> str:
    """The address, if it is one; else an error that names the hook and not the address."""
    variable = f"{HOOK_PREFIX}{hook.upper()}"
    remedy = f"set {variable}, or make it the password of an Airflow connection {hook}"
    if not found:
        raise Refused("hook", "have an address", hook, remedy)
    try:
        parts = urlsplit(found)
        usable = parts.scheme in (*WEB, *MAIL) and bool(parts.hostname) and parts.port != 0
        asked = parse_qs(parts.query)
        addressed = parts.scheme in WEB or (len(asked.get("from", ())) == 1 and bool(asked.get("to")))
    except ValueError:
        usable = addressed = False
    if not usable:
        raise Refused(
            "hook", "have an address that begins with http://, https://, smtp:// or smtps://", hook, remedy
        )
    if not addressed:
        raise Refused("hook", "say who writes and who reads: smtp://HOST:PORT/?from=A@B&to=C@D", hook, remedy)
    return found


def send(address: str, body: dict[str, Any]) -> None:
    """One request, or one letter."""
    parts = urlsplit(address)
    if parts.scheme in MAIL:
        _mail(parts, str(body["text"]))
    else:
        _post(address, body)


def _post(address: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(
        address,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "spillway"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            answer.read(1024)
    except urllib.error.HTTPError as problem:
        again = problem.code in (408, 429) or problem.code >= 500
        raise NotTold(f"it answered {problem.code}", again) from None
    except TimeoutError:
        raise NotTold(f"it did not answer within {TIMEOUT_SECONDS:g} s") from None
    except (OSError, HTTPException, ValueError) as problem:
        raise NotTold(f"it cannot be reached ({_why(problem)})") from None


def _mail(parts: SplitResult, text: str) -> None:
    asked, encrypted = parse_qs(parts.query), parts.scheme == "smtps"
    letter = EmailMessage()
    try:
        letter["Subject"], letter["From"], letter["To"] = (
            text.partition("\n")[0], asked["from"][0], ", ".join(asked["to"]),
        )  # fmt: skip
    except ValueError:
        raise NotTold("its from or to is no address of mail", again=False) from None
    letter.set_content(text)
    context, host = ssl.create_default_context(), str(parts.hostname)
    try:
        with (
            smtplib.SMTP_SSL(host, parts.port or 465, timeout=TIMEOUT_SECONDS, context=context)
            if encrypted
            else smtplib.SMTP(host, parts.port or 25, timeout=TIMEOUT_SECONDS)
        ) as server:
            server.ehlo()
            if not encrypted and server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
                encrypted = True
            if parts.username is not None:
                if not encrypted:
                    raise NotTold(
                        "it takes no encryption, and a password must not cross without", again=False
                    )
                server.login(unquote(parts.username), unquote(parts.password or ""))
            server.send_message(letter)
    except smtplib.SMTPResponseException as problem:
        # 4xx: for now; 5xx: for good
        raise NotTold(f"it answered {problem.smtp_code}", again=problem.smtp_code < 500) from None
    except smtplib.SMTPRecipientsRefused as problem:
        codes = sorted({code for code, _ in problem.recipients.values()})
        raise NotTold(f"it answered {', '.join(map(str, codes))}", again=codes[0] < 500) from None
    except TimeoutError:
        raise NotTold(f"it did not answer within {TIMEOUT_SECONDS:g} s") from None
    except (OSError, smtplib.SMTPException, ValueError) as problem:
        raise NotTold(f"it cannot be reached ({_why(problem)})") from None


def _why(problem: Exception) -> str:
    """What the machine calls it, or of what kind it is."""
    reason = getattr(problem, "reason", problem)
    return reason.strerror if isinstance(reason, OSError) and reason.strerror else type(problem).__name__
