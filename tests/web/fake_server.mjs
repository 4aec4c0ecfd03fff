// A stand-in for kvist: serves the built page with the headers of the real server, and answers the API as a test says.

import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";

const kTypes = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
};
const kPolicy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

const kStranger = {
  error: {
    message: "Incorrect API key provided.",
    type: "invalid_request_error",
    param: null,
    code: "invalid_api_key",
  },
};

/** The pieces of a stream, for tests to send one by one. */
export class Stream {
  constructor(response) {
    this.response = response;
    this.closed = new Promise((resolve) => response.on("close", () => resolve(!response.writableFinished)));
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    this.chunk({ choices: [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }] });
  }
  raw(text) {
    this.response.write(text);
  }
  chunk(body) {
    this.raw(
      `data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", model: "fake", ...body })}\n\n`,
    );
  }
  text(...pieces) {
    for (const content of pieces) this.chunk({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
  }
  end(
    reason = "stop",
    usage = {
      prompt_tokens: 40,
      completion_tokens: 12,
      total_tokens: 52,
      prompt_tokens_details: { cached_tokens: 32 },
    },
  ) {
    this.chunk({ choices: [{ index: 0, delta: {}, finish_reason: reason }] });
    this.chunk({ choices: [], usage });
    this.raw("data: [DONE]\n\n");
    this.response.end();
  }
  /** Breaks the connection in the middle. */
  cut() {
    this.response.destroy();
  }
}

export class FakeServer {
  models = ["fake"];
  key = null; // When set, the API asks for it.
  chats = []; // Bodies of the chats so far.
  keys = []; // Authorization headers of the same.
  health = 200;
  load = null; // A FakeLoad, for the dashboard.
  asked = []; // Paths of the dashboard's requests.
  #waiting = [];
  #streams = [];
  #reply = null;

  constructor(dist) {
    this.dist = dist;
  }

  async start(port = 0) {
    if (!existsSync(join(this.dist, "index.html"))) throw new Error(`no built page in ${this.dist}`);
    this.server = createServer((request, response) => {
      this.#handle(request, response).catch((error) => {
        response.destroy();
        console.error(error);
      });
    });
    await new Promise((resolve) => this.server.listen(port, "127.0.0.1", resolve));
    this.port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.port}/`;
  }

  async stop() {
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await closed;
  }

  /** Back to a well server that knows nothing of the last test. */
  reset() {
    Object.assign(this, { models: ["fake"], key: null, chats: [], keys: [], health: 200, load: null, asked: [] });
    this.#waiting = [];
    this.#streams = [];
    this.#reply = null;
  }

  /** From now on every chat is answered by `reply(stream, body)`. */
  answer(reply) {
    this.#reply = (response, body) => reply(new Stream(response), body);
  }

  /** From now on every chat is refused. */
  refuse(status, error, headers = {}) {
    this.#reply = (response) => {
      response.writeHead(status, { "Content-Type": "application/json", ...headers });
      response.end(typeof error === "string" ? error : JSON.stringify({ error }));
    };
  }

  /** The next chat's stream, in the test's hands. */
  nextStream() {
    this.#reply = null;
    const ready = this.#streams.shift();
    return ready !== undefined ? Promise.resolve(ready) : new Promise((resolve) => this.#waiting.push(resolve));
  }

  async #handle(request, response) {
    const path = new URL(request.url, this.url).pathname;
    if (path === "/health") return void response.writeHead(this.health).end();
    if (path.startsWith("/v1/")) return this.#api(path, request, response);
    if (path.startsWith("/kvist/")) return this.#watch(request, response);
    const file = normalize({ "/": "/index.html", "/dashboard": "/dashboard.html" }[path] ?? path);
    const bytes = await readFile(join(this.dist, file)).catch(() => null);
    if (bytes === null) return void response.writeHead(404).end();
    response.writeHead(200, {
      "Content-Type": kTypes[extname(file)],
      "Content-Security-Policy": kPolicy,
      "X-Content-Type-Options": "nosniff",
    });
    response.end(bytes);
  }

  #isStranger(request) {
    return this.key !== null && request.headers.authorization !== `Bearer ${this.key}`;
  }

  /** What the dashboard asks for. */
  #watch(request, response) {
    const json = (status, body) =>
      response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
    this.asked.push(request.url);
    if (this.#isStranger(request)) return void json(401, kStranger);
    if (this.health !== 200) return void json(this.health, { error: { message: "The engine does not answer." } });
    const body = this.load?.answer(new URL(request.url, this.url)) ?? null;
    if (body === null) return void json(404, { error: { message: "there is nothing at this path" } });
    json(200, body);
  }

  async #api(path, request, response) {
    const json = (status, body) =>
      response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
    let text = "";
    for await (const part of request) text += part;
    if (this.#isStranger(request)) return void json(401, kStranger);
    if (path === "/v1/models")
      return void json(200, { object: "list", data: this.models.map((id) => ({ id, object: "model" })) });
    const body = JSON.parse(text);
    this.chats.push(body);
    this.keys.push(request.headers.authorization ?? null);
    if (this.#reply !== null) return void (await this.#reply(response, body));
    const stream = new Stream(response);
    const waiting = this.#waiting.shift();
    if (waiting !== undefined) waiting(stream);
    else this.#streams.push(stream);
  }
}
