// The conversation as plain data. Every change makes a new list, so that a view can tell by identity what to redraw.

import type { RequestMessage } from "./api";
import type { Speed } from "./speed";

/** Why an answer ended: the model was done, the length limit, the user's stop, or a failure on the way. */
export type Ending = "done" | "length" | "stopped" | "broken";

export interface UserMessage {
  id: number;
  role: "user";
  text: string;
}

export interface AssistantMessage {
  id: number;
  role: "assistant";
  text: string; // As the model wrote it, reasoning included: sent back unchanged, it is found in the server's cache.
  ending: Ending | null; // null = still being written.
  speed: Speed | null;
}

export type Message = UserMessage | AssistantMessage;
export type Conversation = readonly Message[];

function nextId(conversation: Conversation): number {
  return (conversation.at(-1)?.id ?? 0) + 1;
}

export function addUser(conversation: Conversation, text: string): Conversation {
  return [...conversation, { id: nextId(conversation), role: "user", text }];
}

/** Opens an answer. Requires that the last message is the user's. */
export function openAnswer(conversation: Conversation): Conversation {
  return [...conversation, { id: nextId(conversation), role: "assistant", text: "", ending: null, speed: null }];
}

/** Replaces parts of the last message, which must be an answer. */
export function updateAnswer(
  conversation: Conversation,
  change: Partial<Omit<AssistantMessage, "id" | "role">>,
): Conversation {
  const last = conversation.at(-1);
  if (last?.role !== "assistant") return conversation;
  return [...conversation.slice(0, -1), { ...last, ...change }];
}

/** Closes the answer at the end; one without a word is taken back, since a template cannot render it. */
export function closeAnswer(conversation: Conversation, ending: Ending, speed: Speed | null): Conversation {
  const last = conversation.at(-1);
  if (last?.role === "assistant" && last.text === "" && ending !== "done") return conversation.slice(0, -1);
  return updateAnswer(conversation, { ending, speed });
}

/** Takes back the answer at the end, so that it can be asked for again. */
export function dropAnswer(conversation: Conversation): Conversation {
  return conversation.at(-1)?.role === "assistant" ? conversation.slice(0, -1) : conversation;
}

/** Rewrites the user's message `id` and forgets what followed it, which answered other words. */
export function editUser(conversation: Conversation, id: number, text: string): Conversation {
  const index = conversation.findIndex((message) => message.id === id && message.role === "user");
  if (index < 0) return conversation;
  // A new id: the message is another one, and so is whatever comes after it.
  return [...conversation.slice(0, index), { id: nextId(conversation), role: "user", text }];
}

export function lastUser(conversation: Conversation): UserMessage | null {
  for (let i = conversation.length - 1; i >= 0; i--) {
    const message = conversation[i];
    if (message?.role === "user") return message;
  }
  return null;
}

/**
 * The messages to send. Many chat templates insist that roles alternate; the user's messages that got no answer are
 * therefore joined with the next one.
 */
export function toRequest(conversation: Conversation, system: string): RequestMessage[] {
  const messages: RequestMessage[] = [];
  if (system.trim() !== "") messages.push({ role: "system", content: system });
  for (const message of conversation) {
    if (message.text === "") continue;
    const last = messages.at(-1);
    if (last?.role === message.role) last.content += `\n\n${message.text}`;
    else messages.push({ role: message.role, content: message.text });
  }
  return messages;
}

export function serialize(conversation: Conversation): string {
  return JSON.stringify(conversation);
}

/** Reads a stored conversation; anything that is not one gives an empty one. An answer cut by a reload is closed. */
export function parseConversation(json: string | null): Conversation {
  let stored: unknown;
  try {
    stored = JSON.parse(json ?? "[]");
  } catch {
    return [];
  }
  if (!Array.isArray(stored)) return [];
  const messages: Message[] = [];
  for (const item of stored as unknown[]) {
    if (typeof item !== "object" || item === null) return [];
    const { role, text, ending, speed } = item as Record<string, unknown>;
    if (typeof text !== "string") return [];
    const id = messages.length + 1;
    if (role === "user") messages.push({ id, role, text });
    else if (role === "assistant")
      messages.push({ id, role, text, ending: parseEnding(ending), speed: parseSpeed(speed) });
    else return [];
  }
  const last = messages.at(-1);
  return last?.role === "assistant" && last.text === "" ? messages.slice(0, -1) : messages;
}

function parseEnding(value: unknown): Ending {
  return value === "done" || value === "length" || value === "broken" ? value : "stopped";
}

function parseSpeed(value: unknown): Speed | null {
  if (typeof value !== "object" || value === null) return null;
  const record = value as Record<string, unknown>;
  const number = (key: string) => (typeof record[key] === "number" ? record[key] : null);
  return {
    firstTokenMs: number("firstTokenMs"),
    tokensPerSecond: number("tokensPerSecond"),
    tokens: number("tokens") ?? 0,
    counted: record["counted"] === true,
    promptTokens: number("promptTokens"),
    cachedTokens: number("cachedTokens"),
  };
}
