"""An S3 server on loopback for real clients: buckets in memory, and answers that a test may replace by faults.

It knows what delta-rs and Arrow ask: objects with ranges and conditional puts, listings, multipart uploads, deletes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

Fault = Callable[[str, str], tuple[int, str] | None]
"""From a request's method and path to the status and the S3 error code that it is answered with; None: no fault."""


class S3Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *buckets: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.buckets: dict[str, dict[str, bytes]] = {name: {} for name in buckets}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.fault: Fault = lambda _method, _path: None
        self.after: Callable[[str, str], bool] = lambda _method, _path: False
        """Whether to do what a request asks, and then to break the connection instead of answering it."""

    @property
    def environment(self) -> dict[str, str]:
        """What a client has to be told."""
        return {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def s3_server(*buckets: str) -> Iterator[S3Server]:
    server = S3Server(*buckets)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Server

    def log_message(self, *_: object) -> None:
        return

    def _go(self) -> None:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self._body()
        fault = self.server.fault(self.command, unquote(parts.path))
        if fault is not None:
            return self._error(*fault)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        if bucket not in self.server.buckets:
            return self._error(404, "NoSuchBucket")
        self._drop = self.server.after(self.command, unquote(parts.path))
        getattr(self, f"_{self.command.lower()}")(self.server.buckets[bucket], key, asked, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _go  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            content = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" not in (self.headers.get("Content-Encoding") or ""):
            return content
        found, rest = b"", content
        while rest:
            line, _, rest = rest.partition(b"\r\n")
            length = int(line.split(b";")[0], 16)
            if not length:
                break
            found, rest = found + rest[:length], rest[length + 2 :]
        return found

    def _get(self, objects: dict[str, bytes], key: str, asked: dict[str, str], _body: bytes) -> None:
        if not key:
            return self._list(objects, asked)
        if key not in objects:
            return self._error(404, "NoSuchKey")
        content, total = objects[key], len(objects[key])
        given = self.headers.get("Range")
        if not given:
            return self._send(200, content, key=objects[key])
        first, _, last = given.removeprefix("bytes=").partition("-")
        start = int(first) if first else total - int(last)
        end = min(int(last) if first and last else total - 1, total - 1)
        if start > end:
            return self._error(416, "InvalidRange")
        self._send(206, content[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{total}"}, content)

    def _head(self, objects: dict[str, bytes], key: str, _asked: dict[str, str], _body: bytes) -> None:
        if key and key not in objects:
            return self._error(404, "NoSuchKey")
        self._send(200, objects.get(key, b""), key=objects.get(key, b""))

    def _list(self, objects: dict[str, bytes], asked: dict[str, str]) -> None:
        prefix, mark = asked.get("prefix", ""), asked.get("delimiter", "")
        after = asked.get("start-after", "")
        found, folders = [], []
        for name in sorted(objects):
            if not name.startswith(prefix) or name <= after:
                continue
            rest = name.removeprefix(prefix)
            if mark and mark in rest:
                folders.append(prefix + rest.partition(mark)[0] + mark)
            else:
                found.append(name)
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{md5(objects[name]).hexdigest()}&quot;</ETag><Size>{len(objects[name])}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for name in found
        )
        entries += "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            for name in dict.fromkeys(folders)
        )
        count = len(found) + len(set(folders))
        self._xml(
            f"<ListBucketResult><Name>b</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount>"
            f"<MaxKeys>100000</MaxKeys><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        )

    def _put(self, objects: dict[str, bytes], key: str, asked: dict[str, str], body: bytes) -> None:
        if "uploadId" in asked:
            self.server.uploads[asked["uploadId"]][int(asked["partNumber"])] = body
            return self._send(200, b"", key=body)
        if self.headers.get("If-None-Match") == "*" and key in objects:
            return self._error(412, "PreconditionFailed")
        source = self.headers.get("x-amz-copy-source")
        objects[key] = objects[unquote(source).lstrip("/").partition("/")[2]] if source else body
        if source:
            return self._xml("<CopyObjectResult><ETag>&quot;e&quot;</ETag></CopyObjectResult>")
        self._send(200, b"", key=objects[key])

    def _post(self, objects: dict[str, bytes], key: str, asked: dict[str, str], body: bytes) -> None:
        if "uploads" in asked:
            name = str(len(self.server.uploads))
            self.server.uploads[name] = {}
            return self._xml(
                f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            )
        if "uploadId" in asked:
            parts = self.server.uploads.pop(asked["uploadId"])
            objects[key] = b"".join(parts[number] for number in sorted(parts))
            return self._xml(
                "<CompleteMultipartUploadResult><ETag>&quot;e&quot;</ETag></CompleteMultipartUploadResult>"
            )
        if "delete" in asked:
            for part in body.decode().split("<Key>")[1:]:
                objects.pop(part.partition("</Key>")[0], None)
            return self._xml("<DeleteResult></DeleteResult>")
        self._error(501, "NotImplemented")

    def _delete(self, objects: dict[str, bytes], key: str, _asked: dict[str, str], _body: bytes) -> None:
        objects.pop(key, None)
        self._send(204, b"")

    def _error(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>the server says {code}</Message></Error>"
        self._send(status, text.encode(), {"Content-Type": "application/xml"})

    def _xml(self, text: str) -> None:
        self._send(
            200, f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(), {"Content-Type": "application/xml"}
        )

    def _send(
        self, status: int, content: bytes, headers: dict[str, str] | None = None, key: bytes | None = None
    ) -> None:
        if getattr(self, "_drop", False) and status < 300:
            self._drop = False
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if key is not None:
            self.send_header("ETag", f'"{md5(key).hexdigest()}"')
            self.send_header("Last-Modified", formatdate(usegmt=True))
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
