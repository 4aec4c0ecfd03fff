// The system's Chromium under Playwright, and a page that fails its test when it logs an error or asks a stranger.

import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const kFlags = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export function launch() {
  return chromium.launch({
    executablePath: process.env.KVIST_CHROMIUM ?? "/usr/bin/chromium",
    args: kFlags,
    timeout: 60_000,
  });
}

/**
 * Opens `url` in a fresh profile and hands the page to `body`. Afterwards the page must have talked to `url`'s host only
 * and logged no error, save what `expected` matches: browsers log every failed request.
 */
export async function withPage(browser, url, options, body) {
  const { expected = /(?!)/, path = "", ...contextOptions } = options;
  const context = await browser.newContext({ viewport: { width: 1000, height: 720 }, ...contextOptions });
  context.setDefaultTimeout(30_000); // Generous: the machine may be busy with other tests.
  try {
    const page = await context.newPage();
    const problems = [];
    page.on("console", (message) => {
      if (message.type() === "error" && !expected.test(message.text())) problems.push(message.text());
    });
    page.on("pageerror", (error) => problems.push(String(error)));
    context.on("request", (request) => {
      if (!request.url().startsWith(url)) problems.push(`asked ${request.url()}`);
    });
    page.on("dialog", (dialog) => {
      problems.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    await page.goto(url + path);
    await body(page, context);
    assert.deepEqual(problems, []);
  } finally {
    await context.close();
  }
}

/** Waits until `read()` gives `wanted` (a value, or a test of it); says what it gave last otherwise. */
export async function eventually(read, wanted, timeoutMs = 30_000) {
  const end = Date.now() + timeoutMs;
  let last;
  for (;;) {
    last = await read();
    if (typeof wanted === "function" ? wanted(last) : isEqual(last, wanted)) return last;
    if (Date.now() > end)
      assert.fail(`gave up after ${timeoutMs} ms; last seen: ${JSON.stringify(last)}, wanted: ${wanted}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function isEqual(a, b) {
  try {
    assert.deepEqual(a, b);
    return true;
  } catch {
    return false;
  }
}

/** What the tests need to find on the page, by role and name as a user would. */
export class Chat {
  constructor(page) {
    this.page = page;
    this.prompt = page.getByRole("textbox", { name: "Message", exact: true });
    this.send = page.getByRole("button", { name: "Send", exact: true });
    this.stop = page.getByRole("button", { name: "Stop", exact: true });
    this.answers = page.locator("article.answer");
    this.users = page.locator("article.user");
    this.banner = page.locator("#banner .banner");
    this.settings = page.getByRole("dialog", { name: "Settings" });
  }
  async say(text) {
    await this.prompt.fill(text);
    await this.prompt.press("Enter");
  }
  /** Text of the last answer, without headings for screen readers. */
  answerText() {
    return this.answers.last().locator(".markdown").innerText();
  }
  userTexts() {
    return this.users.locator(".bubble").allInnerTexts();
  }
  speed() {
    return this.answers.last().locator(".speed").innerText();
  }
  async finished() {
    await this.stop.waitFor({ state: "hidden" });
  }
  async openSettings() {
    await this.page.getByRole("button", { name: "Settings" }).click();
    await this.settings.waitFor();
  }
}
