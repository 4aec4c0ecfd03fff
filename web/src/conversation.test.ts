import assert from "node:assert/strict";
import { test } from "node:test";
import {
  addUser,
  closeAnswer,
  dropAnswer,
  editUser,
  lastUser,
  openAnswer,
  parseConversation,
  serialize,
  toRequest,
  updateAnswer,
  type Conversation,
} from "./conversation";

function chat(...turns: [string, string][]): Conversation {
  let conversation: Conversation = [];
  for (const [question, answer] of turns) {
    conversation = openAnswer(addUser(conversation, question));
    conversation = closeAnswer(updateAnswer(conversation, { text: answer }), "done", null);
  }
  return conversation;
}

const texts = (conversation: Conversation) => conversation.map((message) => message.text);

test("a request repeats the conversation word for word, so that the server finds it in its cache", () => {
  assert.deepEqual(toRequest(addUser(chat(["a", "<think>x</think>b"]), "c"), "Be brief."), [
    { role: "system", content: "Be brief." },
    { role: "user", content: "a" },
    { role: "assistant", content: "<think>x</think>b" },
    { role: "user", content: "c" },
  ]);
  assert.deepEqual(toRequest(addUser([], "a"), " \n"), [{ role: "user", content: "a" }]);
});

test("roles alternate even where an answer is missing", () => {
  const conversation = addUser(closeAnswer(openAnswer(addUser([], "a")), "broken", null), "b");
  assert.deepEqual(toRequest(conversation, ""), [{ role: "user", content: "a\n\nb" }]);
});

test("an answer without a word is taken back, a cut one is kept", () => {
  const open = openAnswer(addUser([], "a"));
  assert.deepEqual(texts(closeAnswer(open, "stopped", null)), ["a"]);
  assert.deepEqual(texts(closeAnswer(updateAnswer(open, { text: "b" }), "stopped", null)), ["a", "b"]);
});

test("an edit forgets what followed and is a new message", () => {
  const before = chat(["a", "b"], ["c", "d"]);
  const edited = editUser(before, lastUser(before)!.id, "e");
  assert.deepEqual(texts(edited), ["a", "b", "e"]);
  assert.ok(before.every((message) => message.id !== edited.at(-1)!.id));
  assert.deepEqual(texts(editUser(before, 99, "e")), texts(before));
  assert.deepEqual(texts(dropAnswer(before)), ["a", "b", "c"]);
  assert.deepEqual(texts(dropAnswer(dropAnswer(before))), ["a", "b", "c"]);
});

test("a stored conversation comes back; an answer that a reload cut counts as stopped", () => {
  const done = chat(["a", "b"]);
  assert.deepEqual(parseConversation(serialize(done)), done);
  const cut = parseConversation(serialize(updateAnswer(openAnswer(addUser(done, "c")), { text: "d" })));
  const last = cut.at(-1);
  assert.ok(last?.role === "assistant" && last.ending === "stopped" && last.text === "d");
  assert.deepEqual(texts(parseConversation(serialize(openAnswer(addUser([], "a"))))), ["a"]);
});

test("foreign storage gives an empty conversation", () => {
  for (const json of [null, "", "{", "{}", "[1]", `[{"role":"tool","text":""}]`, `[{"role":"user"}]`, "null"]) {
    assert.deepEqual(parseConversation(json), [], String(json));
  }
});
