"""A file server on 127.0.0.1 that can misbehave in the ways networks and servers do. For tests of kvist pull."""
import hashlib
import http.server
import threading
import time


class Resource:
    """One file and how it is served. Faults are lists of what happens to the next requests, one each."""

    def __init__(self, content, etag='"v1"'):
        self.content = content
        self.etag = etag
        self.sends_length = True
        self.takes_ranges = True
        self.linked_sha256 = None  # X-Linked-Etag, as the model hub sends it
        self.redirect = None       # Location
        self.token = None          # Required bearer token
        self.faults = []           # ("cut", bytes) | ("stall", bytes) | ("status", code) | ("slow", bytes)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        hub = self.server.hub
        path = self.path.split("?")[0]
        headers = {k.lower(): v for k, v in self.headers.items()}
        with hub.lock:
            hub.requests.append((path, headers))
            resource = hub.resources.get(path)
            fault = resource.faults.pop(0) if resource and resource.faults else (None, 0)
        if resource is None:
            return self.refuse(404, b"no such file here")
        if resource.token and headers.get("authorization") != f"Bearer {resource.token}":
            return self.refuse(401, b"token please")
        if fault[0] == "status":
            return self.refuse(fault[1], b"not now", {"Retry-After": "0"})
        if resource.redirect:
            extra = {"Location": resource.redirect}
            if resource.linked_sha256:
                extra["X-Linked-Etag"] = f'"{resource.linked_sha256}"'
            return self.refuse(302, b"", extra)
        self.send_file(resource, headers, fault)

    def refuse(self, code, body, headers=None):
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, resource, headers, fault):
        content, begin = resource.content, 0
        wanted = headers.get("range")
        same = headers.get("if-range") in (None, resource.etag)
        if wanted and resource.takes_ranges and same:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(content):
                return self.refuse(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        part = content[begin:]
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        if resource.etag:
            self.send_header("ETag", resource.etag)
        if resource.linked_sha256:
            self.send_header("X-Linked-Etag", f'"{resource.linked_sha256}"')
        if resource.sends_length:
            self.send_header("Content-Length", str(len(part)))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        kind, size = fault
        self.wfile.write(part[:size] if kind else part)
        self.wfile.flush()
        if kind == "stall":
            self.server.hub.stopped.wait(60)
        if kind == "slow":
            for at in range(size, len(part), 4096):
                if self.server.hub.stopped.wait(0.02):
                    return
                self.wfile.write(part[at:at + 4096])


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # Clients that go away are part of the tests.


class Hub:
    """`with Hub() as hub:` serves hub.resources[path] at hub.url + path."""

    def __init__(self):
        self.resources, self.requests = {}, []
        self.lock, self.stopped = threading.Lock(), threading.Event()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.hub = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.server.shutdown()
        self.server.server_close()

    def ranges(self):
        """The Range header of every request so far, None where there was none."""
        return [headers.get("range") for _, headers in self.requests]


def model_bytes(size, seed=1):
    """Looks like a GGUF file at its beginning and like noise after it."""
    block = b"".join(hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in range(2048))
    return (b"GGUF" + block * (size // len(block) + 1))[:size]


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return False
