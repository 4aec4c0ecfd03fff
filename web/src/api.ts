// Client of the server's OpenAI-compatible API. Knows the wire, not the page: everything it needs is passed in, and
// everything that goes wrong is one ApiError.

import { SseParser } from "./sse";

/** Token counts as the server reports them at the end of a stream. */
export interface Usage {
  promptTokens: number;
  completionTokens: number;
  cachedTokens: number | null; // Prompt tokens that were not computed again; null = not reported.
}

export interface RequestMessage {
  role: "system" | "user" | "assistant";
  content: string;
}

/** Body of POST /v1/chat/completions. Sampling fields that are absent take the server's defaults. */
export interface ChatRequest {
  model: string;
  messages: RequestMessage[];
  stream: true;
  stream_options: { include_usage: true };
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  max_tokens?: number;
  seed?: number;
}

export type StreamEvent =
  { kind: "text"; text: string } | { kind: "finish"; reason: string } | { kind: "usage"; usage: Usage };

export type ErrorKind =
  | "unreachable" // No answer from the server at all, or it broke off in the middle of one.
  | "starting" // 503: up, not ready (or about to leave).
  | "unauthorized" // 401
  | "busy" // 429
  | "refused"; // Any other answer that is an error.

export class ApiError extends Error {
  constructor(
    readonly kind: ErrorKind,
    message: string,
    readonly status: number | null = null,
    readonly param: string | null = null,
    readonly retryAfterSeconds: number | null = null,
  ) {
    super(message);
  }
}

/** True for the error that an AbortController causes: the user's wish, not a failure. */
export function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}

export interface ApiOptions {
  base: string; // Address that "v1/models" is relative to; ends in "/".
  key: string; // "" = send no key.
  signal?: AbortSignal;
  fetch?: typeof fetch; // For tests.
}

/** Ids of the served models, in the server's order. */
export async function listModels(options: ApiOptions): Promise<string[]> {
  const body = await readJson(await request("v1/models", options));
  const list = isRecord(body) && Array.isArray(body["data"]) ? body["data"] : [];
  const ids = list.flatMap((model: unknown) =>
    isRecord(model) && typeof model["id"] === "string" ? [model["id"]] : [],
  );
  if (ids.length === 0) throw new ApiError("refused", "The server lists no models.");
  return ids;
}

/** Resolves when the server is up and ready; rejects with the reason otherwise. */
export async function checkHealth(options: ApiOptions): Promise<void> {
  await request("health", options);
}

/** Sends a chat and yields its answer as it is written. Ends normally only when the server said that it was done. */
export async function* streamChat(body: ChatRequest, options: ApiOptions): AsyncGenerator<StreamEvent, void> {
  const response = await request("v1/chat/completions", options, JSON.stringify(body));
  if (!response.headers.get("content-type")?.startsWith("text/event-stream") || response.body === null) {
    throw new ApiError("refused", "The server's answer is not an event stream.", response.status);
  }
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      for (const { data } of parser.push(decoder.decode(value, { stream: true }))) {
        if (data === "[DONE]") return;
        yield* readChunk(data);
      }
    }
  } catch (error) {
    if (error instanceof ApiError || isAbort(error)) throw error;
    throw new ApiError("unreachable", "The connection to the server broke.");
  } finally {
    void reader.cancel().catch(() => undefined); // The reader may have failed already, which is no news.
  }
  throw new ApiError("unreachable", "The server ended the connection before the answer was complete.");
}

function* readChunk(data: string): Generator<StreamEvent> {
  let chunk: unknown;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ApiError("refused", "The server sent an event that is not JSON.");
  }
  if (!isRecord(chunk)) return;
  if (isRecord(chunk["error"])) throw errorFromBody(chunk, null, null);
  const choice: unknown = Array.isArray(chunk["choices"]) ? chunk["choices"][0] : undefined;
  if (isRecord(choice)) {
    const text = isRecord(choice["delta"]) ? choice["delta"]["content"] : undefined;
    if (typeof text === "string" && text !== "") yield { kind: "text", text };
    if (typeof choice["finish_reason"] === "string") yield { kind: "finish", reason: choice["finish_reason"] };
  }
  const usage = chunk["usage"];
  if (isRecord(usage)) yield { kind: "usage", usage: parseUsage(usage) };
}

function parseUsage(usage: Record<string, unknown>): Usage {
  const count = (value: unknown) => (typeof value === "number" && value >= 0 ? value : 0);
  const details = usage["prompt_tokens_details"];
  const cached = isRecord(details) ? details["cached_tokens"] : undefined;
  return {
    promptTokens: count(usage["prompt_tokens"]),
    completionTokens: count(usage["completion_tokens"]),
    cachedTokens: typeof cached === "number" ? cached : null,
  };
}

/** The JSON at a path of the server's own API, whatever it is. */
export async function getJson(path: string, options: ApiOptions): Promise<unknown> {
  return readJson(await request(path, options));
}

async function request(path: string, options: ApiOptions, body?: string): Promise<Response> {
  const headers: Record<string, string> = {};
  if (options.key !== "") headers["Authorization"] = `Bearer ${options.key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init: RequestInit = { method: body === undefined ? "GET" : "POST", headers, cache: "no-store" };
  if (body !== undefined) init.body = body;
  if (options.signal !== undefined) init.signal = options.signal;
  let response: Response;
  try {
    response = await (options.fetch ?? fetch)(new URL(path, options.base), init);
  } catch (error) {
    if (isAbort(error)) throw error;
    // A key with characters that no header can carry fails here too, before anything is sent.
    if (!/^[\x21-\x7e]*$/.test(options.key)) {
      throw new ApiError("unauthorized", "The API key has a character that cannot be sent.");
    }
    throw new ApiError("unreachable", "The server cannot be reached.");
  }
  if (response.ok) return response;
  let parsed: unknown;
  try {
    parsed = JSON.parse(await response.text());
  } catch {
    parsed = undefined; // A proxy's page, or nothing: the status must do.
  }
  throw errorFromBody(parsed, response.status, parseRetryAfter(response.headers.get("retry-after")));
}

async function readJson(response: Response): Promise<unknown> {
  try {
    return await response.json();
  } catch {
    throw new ApiError("refused", "The server's answer is not JSON.", response.status);
  }
}

/** Seconds of a Retry-After header; its form with a date is not used by API servers. */
function parseRetryAfter(header: string | null): number | null {
  return header !== null && /^\d{1,6}$/.test(header.trim()) ? Number(header) : null;
}

/** Reads OpenAI's error shape, {"error": {"message", "type", "param", "code"}}. */
function errorFromBody(body: unknown, status: number | null, retryAfterSeconds: number | null): ApiError {
  const error = isRecord(body) && isRecord(body["error"]) ? body["error"] : {};
  const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : null);
  const kind =
    status === 401 ? "unauthorized" : status === 429 ? "busy" : status === 503 ? "starting" : ("refused" as const);
  const unsaid =
    kind === "starting"
      ? "The server is not ready."
      : status === null
        ? "The server reported an error."
        : `The server answered ${status}.`;
  return new ApiError(kind, text(error["message"]) ?? unsaid, status, text(error["param"]), retryAfterSeconds);
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
