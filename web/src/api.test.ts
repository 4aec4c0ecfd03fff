import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, isAbort, listModels, streamChat, type ApiOptions, type StreamEvent } from "./api";
import { buildRequest, defaultSettings } from "./settings";

const kRequest = buildRequest("m", [{ role: "user", content: "hi" }], defaultSettings());

function answering(response: Response | Error): ApiOptions & { calls: Request[] } {
  const calls: Request[] = [];
  const fetch = async (input: URL | RequestInfo, init?: RequestInit) => {
    calls.push(new Request(input, init));
    if (response instanceof Error) throw response;
    return response;
  };
  return { base: "http://host/prefix/", key: "", fetch, calls };
}

function eventStream(...parts: (string | Uint8Array)[]): Response {
  const bytes = parts.map((part) => (typeof part === "string" ? new TextEncoder().encode(part) : part));
  const body = new ReadableStream({
    start(controller) {
      for (const part of bytes) controller.enqueue(part);
      controller.close();
    },
  });
  return new Response(body, { headers: { "Content-Type": "text/event-stream; charset=utf-8" } });
}

const text = (content: string) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`;

async function collect(options: ApiOptions): Promise<StreamEvent[]> {
  const events: StreamEvent[] = [];
  for await (const event of streamChat(kRequest, options)) events.push(event);
  return events;
}

async function failure(options: ApiOptions): Promise<ApiError> {
  const error: unknown = await collect(options).then(
    () => null,
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ApiError, String(error));
  return error;
}

test("a stream yields text, the reason for its end and usage", async () => {
  const options = answering(
    eventStream(
      `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n`,
      text("Hel"),
      ": waiting\n\n" + text("lo"),
      `data: {"choices":[{"delta":{},"finish_reason":"length"}],"usage":null}\n\n`,
      `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}}\n\n`,
      "data: [DONE]\n\n",
    ),
  );
  assert.deepEqual(await collect(options), [
    { kind: "text", text: "Hel" },
    { kind: "text", text: "lo" },
    { kind: "finish", reason: "length" },
    { kind: "usage", usage: { promptTokens: 9, completionTokens: 2, cachedTokens: 8 } },
  ]);
});

test("a character cut between two reads arrives whole", async () => {
  const bytes = new TextEncoder().encode(text("kött 🌿") + "data: [DONE]\n\n");
  const events = await collect(answering(eventStream(...Array.from(bytes, (byte) => Uint8Array.of(byte)))));
  assert.deepEqual(events, [{ kind: "text", text: "kött 🌿" }]);
});

test("the request is sent as it is, with the key, below the page's prefix", async () => {
  const options = answering(eventStream("data: [DONE]\n\n"));
  options.key = "secret";
  await collect(options);
  const [call] = options.calls;
  assert.equal(call?.url, "http://host/prefix/v1/chat/completions");
  assert.equal(call?.headers.get("authorization"), "Bearer secret");
  assert.deepEqual(await call?.json(), kRequest);
});

test("no key, no header", async () => {
  const options = answering(new Response(`{"data":[{"id":"a"},{"id":"b"},{"x":1}]}`));
  assert.deepEqual(await listModels(options), ["a", "b"]);
  assert.equal(options.calls[0]?.headers.get("authorization"), null);
});

test("errors carry what the server said", async () => {
  const body = JSON.stringify({
    error: { message: "too hot", type: "invalid_request_error", param: "temperature", code: null },
  });
  const refused = await failure(answering(new Response(body, { status: 400 })));
  assert.deepEqual(
    [refused.kind, refused.message, refused.status, refused.param],
    ["refused", "too hot", 400, "temperature"],
  );

  const busy = await failure(answering(new Response("{}", { status: 429, headers: { "Retry-After": "7" } })));
  assert.deepEqual([busy.kind, busy.retryAfterSeconds], ["busy", 7]);

  const kinds = [];
  for (const status of [401, 404, 500, 503])
    kinds.push((await failure(answering(new Response("<html>", { status })))).kind);
  assert.deepEqual(kinds, ["unauthorized", "refused", "refused", "starting"]);
});

test("an error in the middle of a stream is an error", async () => {
  const options = answering(eventStream(text("a"), `data: {"error":{"message":"out of memory"}}\n\n`));
  assert.equal((await failure(options)).message, "out of memory");
});

test("a stream that ends without saying so is an error", async () => {
  assert.equal((await failure(answering(eventStream(text("a"))))).kind, "unreachable");
  assert.equal((await failure(answering(eventStream("data: [DONE]")))).kind, "unreachable");
});

test("answers of the wrong kind are errors, never silence", async () => {
  assert.equal((await failure(answering(new Response("{}")))).kind, "refused");
  assert.equal((await failure(answering(eventStream("data: {not json\n\n")))).kind, "refused");
  await assert.rejects(listModels(answering(new Response("oops"))), ApiError);
  await assert.rejects(listModels(answering(new Response(`{"data":[]}`))), ApiError);
});

test("a server that is not there, and a user who changed their mind, are told apart", async () => {
  assert.equal((await failure(answering(new TypeError("fetch failed")))).kind, "unreachable");
  const abort = new DOMException("aborted", "AbortError");
  await assert.rejects(collect(answering(abort as unknown as Error)), (error) => isAbort(error));
});
