// The page against a real server. Either one that runs already:
//   KVIST_URL=http://127.0.0.1:8080/  (and KVIST_API_KEY where it wants one)
// or one that this test starts and stops:
//   KVIST_BINARY=build/kvist KVIST_MODEL=models/default-q8_0.gguf
// Makes no assumption about the model but that it can write a few words.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Chat, eventually, launch, withPage } from "./browser.mjs";
import { RealServer } from "./real_server.mjs";

const { KVIST_URL, KVIST_BINARY, KVIST_MODEL, KVIST_API_KEY = "", KVIST_SCREENSHOTS } = process.env;
const kSlow = 120_000; // A loaded machine may read even a short prompt slowly.
const skip = KVIST_URL || KVIST_BINARY ? false : "neither KVIST_URL nor KVIST_BINARY is set";

const server = new RealServer();
let browser;
let url = KVIST_URL && new URL("/", KVIST_URL).href;

before(async () => {
  if (skip) return;
  if (!url) {
    // The reference kernels on one thread: a small model would otherwise be done before a browser has drawn its first words.
    const slow = ["--isa", "reference", "--threads", "1"];
    await server.start(KVIST_BINARY, [...(KVIST_MODEL ? [KVIST_MODEL] : []), ...slow], kSlow);
    url = server.url;
  }
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server.stop();
});

function realTest(name, options, body) {
  // The first visit, before the key is in place, may be refused.
  const expected = options.expected ?? (KVIST_API_KEY === "" ? undefined : /401/);
  test(name, { timeout: 2 * kSlow, skip }, () =>
    withPage(browser, url, expected === undefined ? {} : { expected }, async (page) => {
      page.setDefaultTimeout(kSlow);
      await page.evaluate((key) => {
        localStorage.setItem("kvist.api-key", key);
      }, KVIST_API_KEY);
      await page.reload();
      const chat = new Chat(page);
      await eventually(
        () => page.getByLabel("Model").inputValue(),
        (model) => model !== "connecting…",
        kSlow,
      );
      await body(chat, page);
    }),
  );
}

async function limitAnswer(chat, tokens) {
  await chat.openSettings();
  await chat.settings.getByLabel("Longest answer").fill(String(tokens));
  await chat.settings.getByLabel("Temperature").fill("0");
  await chat.settings.getByRole("button", { name: "Done" }).click();
}

realTest(
  "a message gets an answer with its speed, and the conversation goes on after a reload",
  {},
  async (chat, page) => {
    await limitAnswer(chat, 24);
    await chat.say("Tell me about rivers.");
    await eventually(
      () => chat.speed().catch(() => ""),
      (text) => /first token/.test(text),
      kSlow,
    );
    await chat.finished();
    assert.match(await chat.speed(), /(?<!~)\b\d+ tokens?\b.*prompt \d+/s, "the server counted the tokens");
    if (KVIST_SCREENSHOTS) await page.screenshot({ path: `${KVIST_SCREENSHOTS}/real.png` });

    const first = await chat.answers.last().locator(".markdown").textContent();
    await page.reload();
    assert.equal(await chat.answers.last().locator(".markdown").textContent(), first);
    await chat.say("Go on.");
    await eventually(() => chat.answers.count(), 2, kSlow);
    await eventually(
      () => chat.speed(),
      (text) => /prompt \d+/.test(text),
      kSlow,
    );
    assert.equal(await chat.banner.count(), 0);
  },
);

realTest("an answer appears in pieces and can be stopped", {}, async (chat, page) => {
  await limitAnswer(chat, 4000);
  let seen = new Set();
  for (let attempt = 0; attempt < 10; attempt++) {
    seen = new Set();
    // Asked again in the same conversation, a small model has little to add.
    if (attempt > 0) await page.getByRole("button", { name: "New chat" }).click();
    await chat.say("Tell me a story about a cat.");
    await chat.stop.waitFor({ state: "visible", timeout: 10_000 }).catch(() => {}); // Already over: try again.
    await eventually(
      async () => {
        seen.add(
          await chat.answers
            .last()
            .locator(".markdown")
            .textContent()
            .catch(() => ""),
        );
        return seen.size >= 4 || !(await chat.stop.isVisible());
      },
      true,
      kSlow,
    );
    if (await chat.stop.isVisible()) break;
  }
  assert.ok(seen.size >= 4, `the answer appeared in ${seen.size} pieces`);
  await page.keyboard.press("Escape");
  await page.getByText("Stopped.").waitFor();
  const text = await chat.answers.last().locator(".markdown").textContent();
  await page.waitForTimeout(500);
  assert.equal(await chat.answers.last().locator(".markdown").textContent(), text, "nothing comes after a stop");
});

realTest(
  "a request that the server refuses shows the server's words",
  { expected: /Failed to load resource/ },
  async (chat, page) => {
    await page.route("**/v1/chat/completions", (route) => {
      const body = JSON.parse(route.request().postData());
      return route.continue({ postData: JSON.stringify({ ...body, temperature: "hot" }) });
    });
    await chat.say("hi");
    await chat.banner.waitFor();
    assert.match(await chat.banner.innerText(), /temperature/);
  },
);

realTest("the dashboard shows a request while it runs, and explains it afterwards", {}, async (chat, page) => {
  await limitAnswer(chat, 60);
  const dashboard = await page.context().newPage();
  await dashboard.goto(new URL("dashboard", url).href);
  await dashboard.locator("#live").and(dashboard.getByText("live")).waitFor({ timeout: kSlow });
  const rows = dashboard.locator("#timeline button");
  const words = () => rows.first().getAttribute("aria-label", { timeout: kSlow });
  const [earlier] = (await words()).split(","); // The server has answered other tests.
  await chat.say("Tell me about the sea, and the ships on it.");
  await chat.finished();
  const isNew = (text) => !text.startsWith(earlier) && /^chatcmpl-\S+, ended, .*prefill tokens? .*decode tokens/.test(text);
  await eventually(words, isNew, kSlow);
  const [, decoded] = /([\d,]+) decode tokens/.exec(await words());
  await rows.first().focus();
  await dashboard.keyboard.press("Enter");
  const dialog = dashboard.getByRole("dialog");
  await dialog.getByText("output token").waitFor({ timeout: kSlow });
  const [, output] = /(\d+) output tokens?/.exec(await dialog.innerText());
  assert.equal(Number(output), Number(decoded) + 1, "the last token is not computed");
  await dashboard.keyboard.press("Escape");
  await eventually(
    () => dashboard.getByRole("treeitem").count(),
    (count) => count > 0,
    kSlow,
  );
  const cells = await dashboard.locator(".tier tbody td:nth-child(2)").allInnerTexts();
  const total = /([\d,]+) blocks/.exec(await dashboard.locator(".tier h3").innerText())[1];
  const number = (text) => Number(text.replaceAll(",", ""));
  assert.equal(
    cells.reduce((sum, cell) => sum + number(cell), 0),
    number(total),
  );
  if (KVIST_SCREENSHOTS)
    await dashboard.screenshot({ path: `${KVIST_SCREENSHOTS}/real-dashboard.png`, fullPage: true });
  assert.equal(await dashboard.locator("#banner .banner").count(), 0);
  await dashboard.close();
});
