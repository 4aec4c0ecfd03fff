// The dialog for the settings. Each valid change takes effect at once; an invalid one says why and changes nothing.

import { byId, el } from "./dom";
import { defaultSettings, kNumberFields, parseNumber, type NumberField, type Settings } from "./settings";

export interface SettingsDialogActions {
  change(settings: Settings): void;
  changeKey(key: string): void;
}

export class SettingsDialog {
  private readonly dialog = byId("settings", HTMLDialogElement);
  private readonly system = byId("system", HTMLTextAreaElement);
  private readonly keyField = byId("key-field", HTMLElement);
  private readonly key = byId("key", HTMLInputElement);
  private readonly inputs = new Map<NumberField, HTMLInputElement>();
  private settings = defaultSettings();

  constructor(private readonly actions: SettingsDialogActions) {
    const numbers = byId("numbers", HTMLElement);
    for (const field of kNumberFields) numbers.append(this.makeNumber(field));
    this.system.addEventListener("input", () => this.change({ ...this.settings, system: this.system.value }));
    this.key.addEventListener("change", () => actions.changeKey(this.key.value.trim()));
    byId("reset-settings", HTMLButtonElement).addEventListener("click", () => {
      this.change({ ...defaultSettings(), model: this.settings.model });
      this.fill();
    });
    // A click on the backdrop hits the dialog itself; one inside hits something in it.
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
  }

  get isOpen(): boolean {
    return this.dialog.open;
  }

  /** `key` null = the server has not asked for one. */
  open(settings: Settings, key: string | null): void {
    this.settings = settings;
    this.keyField.hidden = key === null;
    this.key.value = key ?? "";
    this.fill();
    this.dialog.showModal();
  }

  private change(settings: Settings): void {
    this.settings = settings;
    this.actions.change(settings);
  }

  private fill(): void {
    this.system.value = this.settings.system;
    for (const [field, input] of this.inputs) {
      input.value = String(this.settings.numbers[field.key] ?? "");
      input.dispatchEvent(new Event("input"));
    }
  }

  private makeNumber(field: NumberField): HTMLElement {
    const id = `setting-${field.key}`;
    const input = el("input", {
      id,
      type: "text",
      autocomplete: "off",
      placeholder: "default",
      "aria-describedby": `${id}-hint`,
      inputmode: field.integer ? "numeric" : "decimal",
    });
    const hint = el("span", { class: "hint", id: `${id}-hint` }, field.hint);
    input.addEventListener("input", () => {
      const result = parseNumber(field, input.value);
      const problem = "problem" in result ? result.problem : null;
      hint.textContent = problem ?? field.hint;
      hint.classList.toggle("problem", problem !== null);
      input.setAttribute("aria-invalid", String(problem !== null));
      if (!("value" in result)) return;
      const { [field.key]: old, ...numbers } = this.settings.numbers;
      if ((old ?? null) === result.value) return;
      this.change({
        ...this.settings,
        numbers: result.value === null ? numbers : { ...numbers, [field.key]: result.value },
      });
    });
    this.inputs.set(field, input);
    return el("p", { class: "field" }, el("label", { for: id }, field.label), input, hint);
  }
}
