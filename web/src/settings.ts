// What the user may set, its limits, and its way to storage and into requests.

import type { ChatRequest, RequestMessage } from "./api";

export type NumberKey = "temperature" | "top_p" | "top_k" | "min_p" | "max_tokens" | "seed";

export interface NumberField {
  key: NumberKey;
  label: string;
  hint: string;
  min: number;
  max: number;
  integer: boolean;
}

/** The sampling settings, in the order of the dialog. Limits are those of the API. */
export const kNumberFields: readonly NumberField[] = [
  {
    key: "temperature",
    label: "Temperature",
    hint: "0 always takes the likeliest token",
    min: 0,
    max: 2,
    integer: false,
  },
  { key: "max_tokens", label: "Longest answer", hint: "in tokens", min: 1, max: 1_000_000, integer: true },
  { key: "top_p", label: "Top p", hint: "keep the likeliest, up to this share", min: 0, max: 1, integer: false },
  { key: "top_k", label: "Top k", hint: "keep so many tokens, 0 is all", min: 0, max: 1_000_000, integer: true },
  { key: "min_p", label: "Min p", hint: "drop those below this share of the best", min: 0, max: 1, integer: false },
  { key: "seed", label: "Seed", hint: "same seed, same answer", min: 0, max: Number.MAX_SAFE_INTEGER, integer: true },
];

export interface Settings {
  system: string; // System prompt; "" = none.
  model: string; // "" = the server's first.
  numbers: Partial<Record<NumberKey, number>>; // Absent = the server's default.
}

export function defaultSettings(): Settings {
  return { system: "", model: "", numbers: {} };
}

/** Value of a field's text: a number, null for "server's default", or what is wrong with it. */
export function parseNumber(field: NumberField, text: string): { value: number | null } | { problem: string } {
  const trimmed = text.trim();
  if (trimmed === "") return { value: null };
  const value = Number(trimmed.replace(",", "."));
  if (!Number.isFinite(value)) return { problem: "Not a number" };
  if (field.integer && !Number.isInteger(value)) return { problem: "Must be a whole number" };
  if (value < field.min) return { problem: `At least ${field.min}` };
  if (value > field.max) return { problem: `At most ${field.max}` };
  return { value };
}

/** Reads stored settings; whatever is missing, foreign or out of range falls back to its default. */
export function parseSettings(json: string | null): Settings {
  const settings = defaultSettings();
  let stored: unknown;
  try {
    stored = JSON.parse(json ?? "null");
  } catch {
    return settings;
  }
  if (typeof stored !== "object" || stored === null) return settings;
  const record = stored as Record<string, unknown>;
  if (typeof record["system"] === "string") settings.system = record["system"];
  if (typeof record["model"] === "string") settings.model = record["model"];
  const numbers = typeof record["numbers"] === "object" && record["numbers"] !== null ? record["numbers"] : {};
  for (const field of kNumberFields) {
    const value = (numbers as Record<string, unknown>)[field.key];
    const parsed = typeof value === "number" ? parseNumber(field, String(value)) : null;
    if (parsed !== null && "value" in parsed && parsed.value !== null) settings.numbers[field.key] = parsed.value;
  }
  return settings;
}

export function buildRequest(model: string, messages: RequestMessage[], settings: Settings): ChatRequest {
  return { model, messages, stream: true, stream_options: { include_usage: true }, ...settings.numbers };
}
