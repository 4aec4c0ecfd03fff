"""A server that misbehaves as told by max_tokens of the request:
1 whole answer, 2 an error event, 3 a cut connection, 4 silence, 5 nonsense, 6 refused, 7 an HTTP error, 8 not streamed,
9 an end without an end, 10 closes the kept connection after answering, else a slow stream of so many pieces."""
import http.server
import json
import threading
import time


def chunk(**fields):
    return "data: " + json.dumps({"choices": [fields]}) + "\n\n"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def whole(self, status, body, **headers):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append((self.path, body, self.headers.get("Authorization")))
        kind = body["max_tokens"]
        if kind == 6:
            return self.whole(429, {"error": {"message": "too many"}}, Retry_After="1")
        if kind == 7:
            return self.whole(400, {"error": {"message": "bad request"}})
        if kind == 8:
            return self.whole(200, {"choices": [{"message": {"content": "x"}}], "usage": {"completion_tokens": 3}})
        if kind == 4:
            self.server.stop.wait(30)
            return None
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if kind == 5:
            self.send("data: <html>\n\n")
        elif kind not in (1, 10):
            for _ in range(2 if kind < 10 else kind):
                self.send(chunk(delta={"content": "w "}))
                time.sleep(0.005)
        if kind == 2:
            self.send('event: error\ndata: {"error":{"message":"broke down"}}\n\n')
        elif kind == 3:
            self.connection.close()
            self.close_connection = True
            return None
        elif kind != 9:
            self.send(": a comment\n\n" + chunk(delta={"content": "end"}, finish_reason="stop") + "data: [DONE]\n\n")
        self.send("")
        if kind == 10:
            self.close_connection = True
        return None


class QuietServer(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *_):  # Clients that are gone.
        pass


class FakeServer:
    def __enter__(self):
        self.http = QuietServer(("127.0.0.1", 0), Handler)
        self.http.bodies = []
        self.http.stop = threading.Event()
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        return self

    def __exit__(self, *_):
        self.http.stop.set()
        self.http.shutdown()
        self.http.server_close()

    @property
    def bodies(self):
        return self.http.bodies
