// The one message above the composer: what went wrong and what can be done about it.

import { button, el } from "./dom";

export interface BannerAction {
  label: string;
  run: () => void;
}

export interface BannerContent {
  tone: "error" | "info";
  message: string;
  action?: BannerAction;
  /** Asks for an API key, and gets what was typed. */
  onKey?: (key: string) => void;
}

export class Banner {
  private shown: BannerContent | null = null;

  constructor(private readonly root: HTMLElement) {}

  show(content: BannerContent): void {
    const { tone, message, action, onKey } = content;
    this.shown = content;
    const box = el(
      "div",
      { class: `banner ${tone}`, role: tone === "error" ? "alert" : "status" },
      el("p", {}, message),
    );
    if (onKey !== undefined) box.append(this.keyForm(onKey));
    if (action !== undefined) {
      const run = el("button", { type: "button", class: "action" }, action.label);
      run.addEventListener("click", () => {
        this.clear();
        action.run();
      });
      box.append(run);
    }
    const dismiss = button("Dismiss", "close", () => this.clear());
    dismiss.classList.add("dismiss");
    box.append(dismiss);
    this.root.replaceChildren(box);
    box.querySelector("input")?.focus();
  }

  /** Takes the banner down; given a content, only while that one is up. */
  clear(content: BannerContent | null = this.shown): void {
    if (content === null || content !== this.shown) return;
    this.shown = null;
    this.root.replaceChildren();
  }

  isShowing(content: BannerContent): boolean {
    return this.shown === content;
  }

  private keyForm(onKey: (key: string) => void): HTMLFormElement {
    const input = el("input", {
      type: "password",
      "aria-label": "API key",
      placeholder: "API key",
      autocomplete: "off",
      spellcheck: "false",
      required: "",
    });
    const form = el("form", { class: "action" }, input, el("button", { type: "submit" }, "Use key"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.clear();
      onKey(input.value.trim());
    });
    return form;
  }
}
