// What the browser keeps between visits. Storage may be full, switched off or written by an older page: reading never
// fails, and a failed write is told to the caller.

import { parseConversation, serialize, type Conversation } from "./conversation";
import { parseSettings, type Settings } from "./settings";

const kConversation = "kvist.conversation";
const kSettings = "kvist.settings";
const kKey = "kvist.api-key";
const kRate = "kvist.dashboard-seconds";

function read(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function write(name: string, value: string): boolean {
  try {
    if (value === "") localStorage.removeItem(name);
    else localStorage.setItem(name, value);
    return true;
  } catch {
    return false;
  }
}

export const loadConversation = (): Conversation => parseConversation(read(kConversation));
export const saveConversation = (value: Conversation): boolean =>
  write(kConversation, value.length === 0 ? "" : serialize(value));

export const loadSettings = (): Settings => parseSettings(read(kSettings));
export const saveSettings = (value: Settings): boolean => write(kSettings, JSON.stringify(value));

export const loadRate = (): string => read(kRate) ?? "";
export const saveRate = (seconds: string): boolean => write(kRate, seconds);

export const loadKey = (): string => read(kKey) ?? "";
export const saveKey = (value: string): boolean => write(kKey, value);
