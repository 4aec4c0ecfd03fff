// The chat page: wires the conversation, the API and what is on the screen.

import "./style.css";
import "./messages.css";
import { ApiError, checkHealth, isAbort, listModels, streamChat, type ApiOptions } from "./api";
import { Banner, type BannerContent } from "./banner";
import {
  addUser,
  closeAnswer,
  dropAnswer,
  editUser,
  openAnswer,
  toRequest,
  updateAnswer,
  type Conversation,
  type Ending,
} from "./conversation";
import { byId, el, fitHeight } from "./dom";
import { Follower } from "./follower";
import { buildRequest, type Settings } from "./settings";
import { SettingsDialog } from "./settings_dialog";
import { SpeedMeter } from "./speed";
import { loadConversation, loadKey, loadSettings, saveConversation, saveKey, saveSettings } from "./store";
import { splitThinking } from "./thinking";
import { isSendKey, Transcript } from "./transcript";

const kSaveEveryMs = 1000; // While an answer is being written.
const kHealthEveryMs = 2000; // While the server is away.

class ChatPage {
  private conversation: Conversation = loadConversation();
  private settings: Settings = loadSettings();
  private key = loadKey();
  private keyWanted = this.key !== "";
  private models: string[] = [];
  private running: AbortController | null = null;
  private savedAt = 0;
  private saveFailed = false;
  private drawCostMs = 0;
  private drawnAt = 0;
  private drawScheduled = false;

  private readonly banner = new Banner(byId("banner", HTMLElement));
  private readonly prompt = byId("prompt", HTMLTextAreaElement);
  private readonly send = byId("send", HTMLButtonElement);
  private readonly stop = byId("stop", HTMLButtonElement);
  private readonly model = byId("model", HTMLSelectElement);
  private readonly welcome = byId("welcome", HTMLElement);
  private readonly status = byId("status", HTMLElement);
  private readonly follower = new Follower(byId("to-end", HTMLButtonElement));
  private readonly transcript = new Transcript(byId("transcript", HTMLElement), {
    edit: (id, text) => this.ask(editUser(this.conversation, id, text)),
    regenerate: () => this.ask(dropAnswer(this.conversation)),
    announce: (text) => this.announce(text),
  });
  private readonly dialog = new SettingsDialog({
    change: (settings) => this.changeSettings(settings),
    changeKey: (key) => {
      this.changeKey(key);
      void this.connect();
    },
  });

  start(): void {
    byId("composer", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.prompt.addEventListener("input", () => this.onPromptInput());
    this.prompt.addEventListener("keydown", (event) => {
      if (!isSendKey(event)) return;
      event.preventDefault();
      this.submit();
    });
    this.stop.addEventListener("click", () => this.running?.abort());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.defaultPrevented && !this.dialog.isOpen) this.running?.abort();
    });
    byId("new-chat", HTMLButtonElement).addEventListener("click", () => this.newChat());
    byId("open-settings", HTMLButtonElement).addEventListener("click", () =>
      this.dialog.open(this.settings, this.keyWanted ? this.key : null),
    );
    this.model.addEventListener("change", () => this.changeSettings({ ...this.settings, model: this.model.value }));
    addEventListener("pagehide", () => this.save());
    this.draw();
    this.follower.jump();
    void this.connect();
  }

  private get api(): ApiOptions {
    return { base: document.baseURI, key: this.key };
  }

  // ---- Talking to the server

  /** Learns what the server serves; on failure says why, and tries again by itself where waiting can help. */
  private async connect(): Promise<void> {
    try {
      await checkHealth(this.api);
      this.models = await listModels(this.api);
      this.showModels();
    } catch (error) {
      this.showError(error, () => void this.connect());
    }
  }

  /** Shows `conversation`, which must end with the user's message, and has the server answer it. */
  private async ask(conversation: Conversation): Promise<void> {
    if (this.running !== null || conversation.at(-1)?.role !== "user") return;
    const before = this.conversation;
    const running = new AbortController();
    this.running = running;
    this.banner.clear();
    this.conversation = openAnswer(conversation);
    this.save();
    this.draw();
    this.follower.jump();
    this.announce("Waiting for the answer");

    const meter = new SpeedMeter(performance.now());
    let ending: Ending = "broken";
    let failure: unknown = null;
    try {
      ending = await this.receive(meter, running.signal);
    } catch (error) {
      if (isAbort(error)) ending = "stopped";
      else failure = error;
    }
    if (this.running !== running) return; // A new chat was begun; this answer is nobody's any more.
    this.running = null;
    this.conversation = closeAnswer(this.conversation, ending, meter.speed());
    const last = this.conversation.at(-1);
    const answered = last?.role === "assistant";
    // A second try that brought nothing must not cost the first answer.
    if (!answered && before.at(-1)?.role === "assistant" && before.at(-2)?.id === last?.id) this.conversation = before;
    this.save();
    this.draw();
    if (failure !== null) this.showError(failure, () => this.ask(dropAnswer(this.conversation)));
    else this.announce(answered ? `Answer: ${splitThinking(last.text).answer}` : "Stopped");
  }

  private async receive(meter: SpeedMeter, signal: AbortSignal): Promise<Ending> {
    if (this.models.length === 0) {
      this.models = await listModels({ ...this.api, signal });
      this.showModels();
    }
    const request = buildRequest(this.model.value, toRequest(this.conversation, this.settings.system), this.settings);
    let ending: Ending = "done";
    let text = "";
    for await (const event of streamChat(request, { ...this.api, signal })) {
      if (signal.aborted) return "stopped"; // Pieces that were under way when the user pressed stop.
      if (event.kind === "text") {
        meter.onText(performance.now());
        text += event.text;
      } else if (event.kind === "usage") {
        meter.onUsage(event.usage);
      } else if (event.reason === "length") {
        ending = "length";
      } else if (event.reason === "error") {
        ending = "broken";
      }
      this.conversation = updateAnswer(this.conversation, { text, speed: meter.speed() });
      this.scheduleDraw();
    }
    return ending;
  }

  private showError(error: unknown, retry: () => void): void {
    if (!(error instanceof ApiError)) {
      this.banner.show({ tone: "error", message: `Something in this page went wrong: ${String(error)}` });
      throw error;
    }
    const again = { label: "Try again", run: retry };
    if (error.kind === "unauthorized") {
      this.keyWanted = true;
      const onKey = (key: string) => {
        this.changeKey(key);
        retry();
      };
      const message = this.key === "" ? "This server asks for an API key." : error.message;
      this.banner.show({ tone: "error", message, onKey });
    } else if (error.kind === "unreachable" || error.kind === "starting") {
      const banner: BannerContent = { tone: "error", message: `${error.message} Waiting for it.`, action: again };
      this.banner.show(banner);
      this.waitForServer(banner, retry);
    } else if (error.kind === "busy") {
      const when = error.retryAfterSeconds === null ? "" : ` Try again in ${error.retryAfterSeconds} s.`;
      this.banner.show({ tone: "error", message: error.message + when, action: again });
    } else {
      const where = error.param === null ? "" : ` (${error.param})`;
      this.banner.show({ tone: "error", message: error.message + where, action: again });
    }
  }

  /** Asks after the server's health while `banner` is up; once it is well, says so, or carries on where nothing was lost. */
  private waitForServer(banner: BannerContent, retry: () => void): void {
    setTimeout(async () => {
      if (!this.banner.isShowing(banner)) return;
      try {
        await checkHealth(this.api);
      } catch {
        this.waitForServer(banner, retry);
        return;
      }
      if (!this.banner.isShowing(banner)) return;
      this.banner.clear();
      if (this.models.length === 0) await this.connect();
      else
        this.banner.show({ tone: "info", message: "The server is back.", action: { label: "Try again", run: retry } });
    }, kHealthEveryMs);
  }

  // ---- What the user does

  private submit(): void {
    const text = this.prompt.value.trim();
    if (text === "" || this.running !== null) return;
    this.prompt.value = "";
    this.onPromptInput();
    void this.ask(addUser(this.conversation, text));
  }

  private newChat(): void {
    const old = this.running === null ? this.conversation : closeAnswer(this.conversation, "stopped", null);
    this.running?.abort();
    this.running = null;
    this.conversation = [];
    this.save();
    this.draw();
    this.prompt.focus();
    if (old.length === 0) {
      this.banner.clear();
      return;
    }
    const undo = () => {
      if (this.running !== null || this.conversation.length > 0) return;
      this.conversation = old;
      this.save();
      this.draw();
      this.follower.jump();
    };
    this.banner.show({
      tone: "info",
      message: "New chat. The last one is gone once you send a message.",
      action: { label: "Undo", run: undo },
    });
  }

  private changeSettings(settings: Settings): void {
    this.settings = settings;
    this.noteSave(saveSettings(settings));
  }

  private changeKey(key: string): void {
    this.key = key;
    this.noteSave(saveKey(key));
  }

  private onPromptInput(): void {
    fitHeight(this.prompt);
    this.send.disabled = this.prompt.value.trim() === "";
  }

  // ---- What is kept and shown

  private save(): void {
    this.savedAt = performance.now();
    this.noteSave(saveConversation(this.conversation));
  }

  private noteSave(saved: boolean): void {
    if (!saved && !this.saveFailed) {
      this.banner.show({
        tone: "error",
        message: "The browser cannot store this conversation; it will be lost on reload.",
      });
    }
    this.saveFailed = !saved;
  }

  /** Draws with the next frame, or later when drawing is dear: three quarters of the time belong to the user. */
  private scheduleDraw(): void {
    if (this.drawScheduled) return;
    this.drawScheduled = true;
    const wait = this.drawnAt + 4 * this.drawCostMs - performance.now();
    setTimeout(
      () =>
        requestAnimationFrame(() => {
          this.drawScheduled = false;
          this.draw();
          if (performance.now() - this.savedAt > kSaveEveryMs) this.save();
        }),
      Math.max(0, wait),
    );
  }

  private draw(): void {
    const began = performance.now();
    const idle = this.running === null;
    this.transcript.show(this.conversation, idle);
    this.welcome.hidden = this.conversation.length > 0;
    this.send.hidden = !idle;
    this.stop.hidden = idle;
    this.follower.follow();
    this.drawnAt = performance.now();
    this.drawCostMs = this.drawnAt - began;
  }

  private showModels(): void {
    const wanted = this.settings.model;
    this.model.replaceChildren(...this.models.map((id) => el("option", { value: id }, id)));
    this.model.value = this.models.includes(wanted) ? wanted : (this.models[0] ?? "");
    this.model.disabled = this.models.length < 2;
  }

  private announce(text: string): void {
    this.status.textContent = text;
  }
}

new ChatPage().start();
