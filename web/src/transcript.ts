// Draws the conversation. Holds no state of its own but what is on the screen: an open editor, a folded reasoning.

import type { AssistantMessage, Conversation, Ending, Message, UserMessage } from "./conversation";
import { button, copyText, el, fitHeight, icon } from "./dom";
import { MarkdownView } from "./markdown";
import { describeSpeed } from "./speed";
import { splitThinking } from "./thinking";

export interface TranscriptActions {
  edit(id: number, text: string): void;
  regenerate(): void;
  announce(text: string): void; // To screen readers.
}

/** What a message may offer at the moment. */
interface Place {
  isLast: boolean;
  isLastUser: boolean;
  idle: boolean;
}

interface MessageView {
  readonly id: number;
  readonly element: HTMLElement;
  update(message: Message, place: Place): void;
}

export class Transcript {
  private views: MessageView[] = [];

  constructor(
    private readonly root: HTMLElement,
    private readonly actions: TranscriptActions,
  ) {}

  /** Shows `conversation`, reusing what is on the screen already. `idle`: no answer is being written. */
  show(conversation: Conversation, idle: boolean): void {
    let same = 0;
    while (this.views[same] !== undefined && this.views[same]!.id === conversation[same]?.id) same++;
    for (const view of this.views.splice(same)) view.element.remove();
    const lastUser = conversation.findLastIndex((message) => message.role === "user");
    conversation.forEach((message, i) => {
      let view = this.views[i];
      if (view === undefined) {
        view = message.role === "user" ? new UserView(message, this.actions) : new AnswerView(message, this.actions);
        this.views.push(view);
        this.root.append(view.element);
      }
      view.update(message, { isLast: i === conversation.length - 1, isLastUser: i === lastUser, idle });
    });
  }
}

function copyButton(text: () => string, actions: TranscriptActions, label = "Copy"): HTMLButtonElement {
  const copy = button(label, "copy", async () => {
    const copied = await copyText(text());
    actions.announce(copied ? "Copied" : "The browser did not allow copying");
    if (!copied) return;
    copy.replaceChildren(icon("done"));
    setTimeout(() => copy.replaceChildren(icon("copy")), 1500);
  });
  return copy;
}

class UserView implements MessageView {
  readonly id: number;
  readonly element: HTMLElement;
  private text = "";
  private readonly body = el("div", { class: "bubble" });
  private readonly bar = el("div", { class: "actions" });
  private readonly editButton: HTMLButtonElement;
  private readonly againButton: HTMLButtonElement;
  private editor: HTMLFormElement | null = null;

  constructor(
    message: UserMessage,
    private readonly actions: TranscriptActions,
  ) {
    this.id = message.id;
    this.editButton = button("Edit", "edit", () => this.openEditor());
    this.againButton = button("Ask again", "again", () => actions.regenerate());
    this.bar.append(
      copyButton(() => this.text, actions),
      this.editButton,
      this.againButton,
    );
    this.element = el(
      "article",
      { class: "message user" },
      el("h2", { class: "visually-hidden" }, "You"),
      this.body,
      this.bar,
    );
  }

  update(message: Message, place: Place): void {
    if (message.text !== this.text) this.body.textContent = this.text = message.text;
    this.editButton.hidden = !(place.isLastUser && place.idle);
    this.againButton.hidden = !(place.isLast && place.idle); // No answer follows: it failed, or was stopped early.
    if (!place.idle || !place.isLastUser) this.closeEditor();
  }

  private openEditor(): void {
    const area = el("textarea", { "aria-label": "Edit your message" });
    const form = el(
      "form",
      { class: "editor" },
      area,
      el(
        "p",
        { class: "buttons" },
        el("button", { type: "button" }, "Cancel"),
        el("button", { type: "submit", class: "primary" }, "Send"),
      ),
    );
    const cancel = () => {
      this.closeEditor();
      this.editButton.focus();
    };
    form.querySelector("button")!.addEventListener("click", cancel);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = area.value.trim();
      if (text !== "") this.actions.edit(this.id, text);
    });
    area.addEventListener("input", () => fitHeight(area));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.preventDefault(); // Esc leaves the editor; it must not also stop anything.
        cancel();
      } else if (isSendKey(event)) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    area.value = this.text;
    this.editor = form;
    this.body.hidden = this.bar.hidden = true;
    this.element.append(form);
    fitHeight(area);
    area.focus();
    form.scrollIntoView({ block: "nearest" });
  }

  private closeEditor(): void {
    this.editor?.remove();
    this.editor = null;
    this.body.hidden = this.bar.hidden = false;
  }
}

/** Enter sends, with three exceptions: Shift, an input method at work, and a touch keyboard, which has no Shift+Enter. */
export function isSendKey(event: KeyboardEvent): boolean {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches;
}

const kNotes: Record<Ending, string> = {
  done: "",
  length: "Cut off at the longest allowed answer.",
  stopped: "Stopped.",
  broken: "Broken off by an error.",
};

class AnswerView implements MessageView {
  readonly id: number;
  readonly element: HTMLElement;
  private answer = "";
  private shownText: string | null = null;
  private readonly thinking = el("details", { class: "thinking" });
  private readonly thinkingTitle = el("summary");
  private readonly thinkingText = el("div", { class: "thoughts" });
  private readonly body = el("div", { class: "markdown" });
  private readonly waiting = el(
    "p",
    { class: "waiting" },
    el("span", { class: "pulse", "aria-hidden": "true" }),
    "Reading the prompt",
  );
  private readonly note = el("p", { class: "note" });
  private readonly speed = el("p", { class: "speed" });
  private readonly bar = el("div", { class: "actions" });
  private readonly againButton: HTMLButtonElement;
  private readonly markdown: MarkdownView;

  constructor(message: AssistantMessage, actions: TranscriptActions) {
    this.id = message.id;
    this.thinking.append(this.thinkingTitle, this.thinkingText);
    this.againButton = button("Answer again", "again", () => actions.regenerate());
    this.bar.append(
      copyButton(() => this.answer, actions),
      this.againButton,
    );
    const foot = el("div", { class: "foot" }, this.speed, this.bar);
    this.element = el(
      "article",
      { class: "message answer" },
      el("h2", { class: "visually-hidden" }, "Answer"),
      this.waiting,
      this.thinking,
      this.body,
      this.note,
      foot,
    );
    this.markdown = new MarkdownView(this.body, (pre, language) => decorateCode(pre, language, actions));
  }

  update(message: Message, place: Place): void {
    if (message.role !== "assistant") return;
    if (message.text !== this.shownText) this.showText(message.text);
    const running = message.ending === null;
    const note =
      message.ending === null
        ? ""
        : message.ending === "done" && message.text === ""
          ? "The model said nothing."
          : kNotes[message.ending];
    this.element.classList.toggle("running", running);
    this.element.setAttribute("aria-busy", String(running));
    this.waiting.hidden = !(running && message.text === "");
    this.note.hidden = note === "";
    this.note.textContent = note;
    this.bar.hidden = running;
    this.againButton.hidden = !(place.isLast && place.idle);
    const parts = message.speed === null ? [] : describeSpeed(message.speed);
    if (this.speed.textContent !== parts.join(""))
      this.speed.replaceChildren(...parts.map((part) => el("span", {}, part)));
  }

  private showText(text: string): void {
    this.shownText = text;
    const parts = splitThinking(text);
    this.thinking.hidden = parts.thinking === null;
    this.thinkingTitle.textContent = parts.thinkingOpen ? "Thinking…" : "Thoughts";
    this.thinkingText.textContent = parts.thinking ?? "";
    this.answer = parts.answer;
    this.markdown.update(parts.answer);
  }
}

function decorateCode(pre: HTMLPreElement, language: string, actions: TranscriptActions): void {
  const frame = el("div", { class: "code" });
  pre.replaceWith(frame);
  pre.tabIndex = 0; // Long lines scroll; so the keyboard must reach it.
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", language === "" ? "Code" : `Code, ${language}`);
  const copy = copyButton(() => pre.textContent ?? "", actions, "Copy code");
  frame.append(el("div", { class: "code-head" }, el("span", {}, language), copy), pre);
}
