// What the page does, against a server that does what the test says.
//   KVIST_WEB_DIST  folder of the built page (default web/dist)

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Chat, eventually, launch, withPage } from "./browser.mjs";
import { FakeServer } from "./fake_server.mjs";

const kDist = process.env.KVIST_WEB_DIST ?? fileURLToPath(new URL("../../web/dist", import.meta.url));
const kFailedLoad = /Failed to load resource/;

const server = new FakeServer(kDist);
let browser;

before(async () => {
  await server.start();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server.stop();
});
beforeEach(() => server.reset());

/** A test of the page, by default in a window of a desktop. */
function pageTest(name, options, body) {
  test(name, { timeout: 120_000 }, () =>
    withPage(browser, server.url, options, (page, context) => body(new Chat(page), page, context)),
  );
}

const echo = (stream, body) => {
  stream.text("echo: ", body.messages.at(-1).content);
  stream.end();
};

pageTest("an answer appears as it is written, with its speed", {}, async (chat, page) => {
  await chat.say("Hello");
  const stream = await server.nextStream();
  await page.getByText("Reading the prompt").waitFor();
  stream.text("First");
  await eventually(() => chat.answerText(), "First");
  await page.waitForTimeout(100);
  stream.text(" second", " third");
  await eventually(() => chat.answerText(), "First second third");
  await eventually(
    () => chat.speed(),
    (text) => /tokens\/s.*first token \d.*~3 tokens/s.test(text),
  );
  await chat.stop.waitFor();
  stream.end();
  await chat.finished();
  const speed = await chat.speed();
  assert.match(speed, /[\d.]+ tokens\/s/);
  assert.match(speed, /[^~]12 tokens/);
  assert.match(speed, /prompt 40, 32 cached/);
  assert.deepEqual(server.chats, [
    {
      model: "fake",
      messages: [{ role: "user", content: "Hello" }],
      stream: true,
      stream_options: { include_usage: true },
    },
  ]);
  assert.deepEqual(server.keys, [null]);
});

pageTest("the whole conversation is sent each time", {}, async (chat) => {
  server.answer(echo);
  await chat.say("one");
  await chat.finished();
  await chat.say("two");
  await eventually(() => chat.answerText(), "echo: two");
  assert.deepEqual(server.chats[1].messages, [
    { role: "user", content: "one" },
    { role: "assistant", content: "echo: one" },
    { role: "user", content: "two" },
  ]);
});

for (const how of ["button", "Escape"]) {
  pageTest(`stop by ${how} ends the request and keeps what was written`, {}, async (chat, page) => {
    await chat.say("Tell me everything");
    const stream = await server.nextStream();
    stream.text("It began");
    await eventually(() => chat.answerText(), "It began");
    if (how === "button") await chat.stop.click();
    else await page.keyboard.press("Escape");
    assert.equal(await stream.closed, true, "the server sees the connection go");
    await page.getByText("Stopped.").waitFor();
    assert.equal(await chat.answerText(), "It began");
    server.answer(echo);
    await chat.say("go on");
    await eventually(() => chat.answerText(), "echo: go on");
    assert.equal(server.chats[1].messages[1].content, "It began");
  });
}

pageTest("stopped before the first word, the question can be asked again", {}, async (chat, page) => {
  await chat.say("slow one");
  await server.nextStream();
  await chat.stop.click();
  await chat.finished();
  assert.equal(await chat.answers.count(), 0);
  server.answer(echo);
  await page.getByRole("button", { name: "Ask again" }).click();
  await eventually(() => chat.answerText(), "echo: slow one");
});

pageTest("settings are sent, kept over a reload, and can be reset", {}, async (chat, page) => {
  server.answer(echo);
  await chat.openSettings();
  await chat.settings.getByLabel("System prompt").fill("Be brief.");
  for (const [label, value] of [
    ["Temperature", "0.3"],
    ["Top p", "0.9"],
    ["Top k", "20"],
    ["Min p", "0.05"],
    ["Longest answer", "99"],
    ["Seed", "7"],
  ]) {
    await chat.settings.getByLabel(label).fill(value);
  }
  await chat.settings.getByRole("button", { name: "Done" }).click();
  await page.reload();
  await chat.say("hi");
  await chat.finished();
  const { messages, model, stream, stream_options, ...sampling } = server.chats[0];
  assert.deepEqual(sampling, { temperature: 0.3, top_p: 0.9, top_k: 20, min_p: 0.05, max_tokens: 99, seed: 7 });
  assert.deepEqual(messages[0], { role: "system", content: "Be brief." });

  await chat.openSettings();
  await chat.settings.getByRole("button", { name: "Reset" }).click();
  await page.keyboard.press("Escape");
  await chat.settings.waitFor({ state: "hidden" });
  await chat.say("again");
  await eventually(() => server.chats.length, 2);
  assert.equal(server.chats[1].temperature, undefined);
  assert.equal(server.chats[1].messages[0].role, "user");
});

pageTest("a setting out of range says so and is not sent", {}, async (chat) => {
  server.answer(echo);
  await chat.openSettings();
  const field = chat.settings.getByLabel("Temperature");
  await field.fill("1.5");
  await field.fill("15");
  await chat.settings.getByText("At most 2").waitFor();
  assert.equal(await field.getAttribute("aria-invalid"), "true");
  await chat.settings.getByRole("button", { name: "Done" }).click();
  await chat.say("hi");
  await chat.finished();
  assert.equal(server.chats[0].temperature, 1.5);
});

pageTest("no API key field before a server asks for one", {}, async (chat) => {
  await chat.openSettings();
  assert.equal(await chat.settings.getByLabel("API key").isVisible(), false);
});

pageTest("the conversation outlives a reload, even in the middle of an answer", {}, async (chat, page) => {
  server.answer(echo);
  await chat.say("remember **me**");
  await chat.finished();
  await page.reload();
  await eventually(() => chat.userTexts(), ["remember **me**"]);
  assert.equal(await chat.answerText(), "echo: remember me");
  assert.match(await chat.speed(), /12 tokens/);

  const next = server.nextStream();
  await chat.say("more");
  const stream = await next;
  stream.text("half an");
  await eventually(() => chat.answerText(), "half an");
  await page.reload();
  assert.equal(await stream.closed, true);
  await eventually(() => chat.answerText(), "half an");
  assert.equal(await chat.stop.isVisible(), false);
});

pageTest("a new chat forgets the old one, unless the user takes it back", {}, async (chat, page) => {
  server.answer(echo);
  await chat.say("old");
  await chat.finished();
  const newChat = page.getByRole("button", { name: "New chat" });
  await newChat.click();
  await page.getByText("What would you like to know?").waitFor();
  await chat.banner.getByRole("button", { name: "Undo" }).click();
  await eventually(() => chat.userTexts(), ["old"]);
  await newChat.click();
  await chat.say("new");
  await chat.finished();
  assert.deepEqual(server.chats.at(-1).messages, [{ role: "user", content: "new" }]);
  await page.reload();
  await eventually(() => chat.userTexts(), ["new"]);
});

pageTest("a new chat in the middle of an answer ends it", {}, async (chat, page) => {
  await chat.say("old");
  const stream = await server.nextStream();
  stream.text("blah");
  await eventually(() => chat.answerText(), "blah");
  await page.getByRole("button", { name: "New chat" }).click();
  assert.equal(await stream.closed, true);
  server.answer(echo);
  await chat.say("new");
  await eventually(() => chat.answerText(), "echo: new");
  assert.deepEqual(await chat.userTexts(), ["new"]);
});

pageTest(
  "the last answer can be asked for again, and is not lost when that fails",
  { expected: kFailedLoad },
  async (chat, page) => {
    let turn = 0;
    server.answer((stream) => {
      stream.text(`try ${++turn}`);
      stream.end();
    });
    await chat.say("hi");
    await chat.finished();
    const again = chat.answers.last().getByRole("button", { name: "Answer again" });
    await again.click();
    await eventually(() => chat.answerText(), "try 2");
    assert.deepEqual(server.chats[1], server.chats[0]);
    server.refuse(500, { message: "no more" });
    await again.click();
    await chat.banner.getByText("no more").waitFor();
    assert.equal(await chat.answerText(), "try 2");
    await page.reload();
    await eventually(() => chat.answerText(), "try 2");
  },
);

pageTest("the last question can be edited", {}, async (chat, page) => {
  server.answer(echo);
  await chat.say("first");
  await chat.finished();
  await chat.say("tpyo");
  await chat.finished();
  assert.equal(await page.getByRole("button", { name: "Edit" }).count(), 1, "only the last one");
  await page.getByRole("button", { name: "Edit" }).click();
  const editor = page.getByRole("textbox", { name: "Edit your message" });
  await editor.fill("nothing");
  await editor.press("Escape");
  assert.deepEqual(await chat.userTexts(), ["first", "tpyo"]);
  await page.getByRole("button", { name: "Edit" }).click();
  await editor.fill("typo");
  await editor.press("Enter");
  await eventually(() => chat.answerText(), "echo: typo");
  assert.deepEqual(await chat.userTexts(), ["first", "typo"]);
  assert.deepEqual(
    server.chats.at(-1).messages.map((message) => message.content),
    ["first", "echo: first", "typo"],
  );
});

pageTest("a server that wants a key is given one", { expected: kFailedLoad }, async (chat, page) => {
  server.key = "sesame";
  server.answer(echo);
  await page.reload();
  const field = chat.banner.getByLabel("API key");
  await chat.banner.getByText("asks for an API key").waitFor();
  await field.fill("wrong");
  await field.press("Enter");
  await chat.banner.getByText("Incorrect API key provided.").waitFor();
  await field.fill("sesame");
  await field.press("Enter");
  await chat.banner.waitFor({ state: "detached" });
  await chat.say("open");
  await eventually(() => chat.answerText(), "echo: open");
  await page.reload();
  await chat.say("still open");
  await eventually(() => chat.answerText(), "echo: still open");
  assert.deepEqual(server.keys, ["Bearer sesame", "Bearer sesame"]);
  await chat.openSettings();
  assert.equal(await chat.settings.getByLabel("API key").inputValue(), "sesame");
});

pageTest(
  "a key that stops working is asked for again, and the question is not lost",
  { expected: kFailedLoad },
  async (chat) => {
    server.answer(echo);
    server.key = "later";
    await chat.say("hi");
    const field = chat.banner.getByLabel("API key");
    await field.fill("later");
    await field.press("Enter");
    await eventually(() => chat.answerText(), "echo: hi");
  },
);

const kErrors = [
  [
    400,
    { message: "temperature must be at most 2", type: "invalid_request_error", param: "temperature", code: null },
    {},
    "temperature must be at most 2 (temperature)",
  ],
  [
    429,
    { message: "All slots are taken.", type: "rate_limit_error", param: null, code: null },
    { "Retry-After": "3" },
    "All slots are taken. Try again in 3 s.",
  ],
  [500, "<html>proxy trouble</html>", {}, "The server answered 500."],
];
for (const [status, error, headers, message] of kErrors) {
  pageTest(
    `${status} is shown in the server's words, and one can try again`,
    { expected: kFailedLoad },
    async (chat) => {
      server.refuse(status, error, headers);
      await chat.say("hi");
      await chat.banner.getByText(message, { exact: true }).waitFor();
      assert.equal(await chat.banner.getAttribute("role"), "alert");
      assert.deepEqual(await chat.userTexts(), ["hi"]);
      server.answer(echo);
      await chat.banner.getByRole("button", { name: "Try again" }).click();
      await eventually(() => chat.answerText(), "echo: hi");
      assert.equal(await chat.banner.count(), 0);
    },
  );
}

pageTest("an error in the middle of an answer keeps what was written", {}, async (chat, page) => {
  await chat.say("hi");
  const stream = await server.nextStream();
  stream.text("so far");
  await eventually(() => chat.answerText(), "so far");
  stream.chunk({ error: { message: "The engine stopped.", type: "server_error", param: null, code: null } });
  await chat.banner.getByText("The engine stopped.").waitFor();
  await page.getByText("Broken off by an error.").waitFor();
  assert.equal(await chat.answerText(), "so far");
});

pageTest("a connection that breaks in the middle of an answer is told", { expected: /ERR_/ }, async (chat, page) => {
  await chat.say("hi");
  const stream = await server.nextStream();
  stream.text("so far");
  await eventually(() => chat.answerText(), "so far");
  stream.cut();
  await chat.banner.getByText("The connection to the server broke.").waitFor();
  await page.getByText("Broken off by an error.").waitFor();
  assert.equal(await chat.answerText(), "so far");
});

pageTest("a server that goes and comes back", { expected: kFailedLoad }, async (chat) => {
  server.answer(echo);
  await chat.say("one");
  await chat.finished();
  await server.stop();
  await chat.say("two");
  await chat.banner.getByText("The server cannot be reached.").waitFor();
  await server.start(server.port);
  await chat.banner.getByText("The server is back.").waitFor();
  await chat.banner.getByRole("button", { name: "Try again" }).click();
  await eventually(() => chat.answerText(), "echo: two");
});

pageTest("a server that is not ready yet is waited for", { expected: kFailedLoad }, async (chat, page) => {
  server.health = 503;
  await page.reload();
  await chat.banner.getByText("The server is not ready. Waiting for it.").waitFor();
  server.health = 200;
  await chat.banner.waitFor({ state: "detached" });
  assert.equal(await page.getByLabel("Model").inputValue(), "fake");
});

pageTest("what a model writes cannot act in the page", {}, async (chat, page) => {
  const attacks = [
    `<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"><svg onload="window.hacked = 3">`,
    `[a](javascript:window.hacked=4) <a href="javascript:window.hacked=5">b</a> [c](data:text/html,<script>window.hacked=6</script>)`,
    `![pixel](https://stranger.example/pixel.png) <iframe src="https://stranger.example/"></iframe>`,
    '```"onmouseover="window.hacked=7\n<script>window.hacked = 8</script>\n```',
    `<style>body { display: none }</style> <p style="position:fixed">styled</p> <form action="/v1/x"><input name=y></form>`,
    `[d](https://fine.example "t\\" onclick=\\"window.hacked=9") <base href="https://stranger.example/">`,
    `| <img src=x onerror=window.hacked=10> | b |\n|---|---|\n| <b onclick="window.hacked=11">x</b> | y |`,
  ];
  server.answer((stream) => {
    for (const attack of attacks) stream.text(...attack.match(/.{1,7}/gs), "\n\n");
    stream.end();
  });
  await chat.say("<img src=x onerror='window.hacked=12'>");
  await chat.finished();
  const found = await page.evaluate(() => ({
    hacked: window.hacked ?? null,
    tags: [...new Set([...document.querySelectorAll(".message .markdown *")].map((e) => e.localName))].sort(),
    links: [...document.querySelectorAll(".markdown a")].map((a) => [a.getAttribute("href"), a.rel, a.target]),
    attributes: [
      ...new Set(
        [...document.querySelectorAll(".markdown .block > :not(.code) *")].flatMap((e) => e.getAttributeNames()),
      ),
    ].sort(),
  }));
  assert.equal(found.hacked, null);
  for (const tag of ["script", "img", "iframe", "style", "form", "input", "base"])
    assert.ok(!found.tags.includes(tag), tag);
  for (const [href, rel, target] of found.links) {
    assert.ok(href === null || /^https:\/\//.test(href), href);
    assert.deepEqual([rel, target], ["noopener noreferrer", "_blank"]);
  }
  assert.deepEqual(
    found.attributes.filter((name) => !["href", "title", "target", "rel", "align"].includes(name)),
    [],
  );
  assert.match(await chat.answerText(), /<script>window\.hacked = 1<\/script>/, "HTML is shown as it was written");
  assert.deepEqual(await chat.userTexts(), ["<img src=x onerror='window.hacked=12'>"]);
});

pageTest("Markdown is rendered the same whether it comes at once or letter by letter", {}, async (chat) => {
  const text =
    "# Title\n\nSome *text* with `code` and a [link][1].\n\n- one\n- two\n\n  more\n\n3. third\n\n```js\nlet a = 1;\n\nlet b;\n```\n\n" +
    "| a | b |\n|---|--:|\n| 1 | 2 |\n\n> quoted\n\nSetext\n===\n\n[1]: https://example.org/\n";
  const html = () =>
    chat.answers
      .last()
      .locator(".markdown")
      .evaluate((e) => e.innerHTML);
  server.answer((stream) => {
    stream.text(text);
    stream.end();
  });
  await chat.say("at once");
  await chat.finished();
  const whole = await html();
  for (const part of [
    '<a href="https://example.org/"',
    '<th align="right">',
    'data-language="js"',
    '<ol start="3">',
    "<h3>Setext</h3>",
  ]) {
    assert.ok(whole.includes(part), `${part} in ${whole}`);
  }
  server.answer(async (stream) => {
    for (const letter of text) {
      stream.text(letter);
      await new Promise((resolve) => setTimeout(resolve, 3));
    }
    stream.end();
  });
  await chat.say("letter by letter");
  await chat.finished();
  assert.equal(await html(), whole);
});

pageTest("reasoning is folded away from the answer", {}, async (chat, page) => {
  await chat.say("why?");
  const stream = await server.nextStream();
  stream.text("<thi", "nk>", "Let me", " see");
  await page.getByText("Thinking…").waitFor();
  stream.text("</think>", "\n\nBecause.");
  stream.end();
  await chat.finished();
  assert.equal(await chat.answerText(), "Because.");
  const thoughts = page.getByText("Let me see");
  assert.equal(await thoughts.isVisible(), false);
  await page.getByText("Thoughts").click();
  assert.equal(await thoughts.isVisible(), true);
});

pageTest("an answer that was cut at the limit says so", {}, async (chat, page) => {
  server.answer((stream) => {
    stream.text("a lot");
    stream.end("length");
  });
  await chat.say("write");
  await page.getByText("Cut off at the longest allowed answer.").waitFor();
});

pageTest(
  "messages and code can be copied",
  { permissions: ["clipboard-read", "clipboard-write"] },
  async (chat, page) => {
    const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
    server.answer((stream) => {
      stream.text("Do **this**:\n\n```sh\nmake\n  install\n```\n");
      stream.end();
    });
    await chat.say("how?");
    await chat.finished();
    await chat.answers.last().getByRole("button", { name: "Copy", exact: true }).click();
    await eventually(clipboard, "Do **this**:\n\n```sh\nmake\n  install\n```\n");
    await page.getByRole("button", { name: "Copy code" }).click();
    await eventually(clipboard, "make\n  install");
    await chat.users.last().hover();
    await chat.users.last().getByRole("button", { name: "Copy" }).click();
    await eventually(clipboard, "how?");
  },
);

pageTest("an answer that the engine gave up is not shown as complete", {}, async (chat, page) => {
  server.answer((stream) => {
    stream.text("half");
    stream.end("error");
  });
  await chat.say("write");
  await page.getByText("Broken off by an error.").waitFor();
});

pageTest("the keyboard is enough", {}, async (chat, page) => {
  server.answer(echo);
  await eventually(() => page.evaluate(() => document.activeElement.id), "prompt");
  await page.keyboard.type("two");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("lines");
  await page.keyboard.press("Enter");
  await eventually(() => chat.userTexts(), ["two\nlines"]);
  await chat.finished();
  await page.keyboard.press("Enter"); // Nothing to send.
  await page.waitForTimeout(100);
  assert.equal(server.chats.length, 1);

  const reached = new Set();
  for (let i = 0; i < 20; i++) {
    await page.keyboard.press("Tab");
    reached.add(
      await page.evaluate(
        () => document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent,
      ),
    );
  }
  for (const name of ["Skip to the message field", "New chat", "Settings", "Copy", "Edit", "Answer again"])
    assert.ok(reached.has(name), name);
});

pageTest("Enter that confirms an input method's word does not send", {}, async (chat, page) => {
  await chat.prompt.fill("にほん");
  await chat.prompt.dispatchEvent("keydown", { key: "Enter", isComposing: true, bubbles: true });
  await page.waitForTimeout(100);
  assert.equal(server.chats.length, 0);
  assert.equal(await chat.prompt.inputValue(), "にほん");
});

pageTest("screen readers hear the answer once, when it is complete", {}, async (chat, page) => {
  const status = page.getByRole("status");
  await chat.say("hi");
  const stream = await server.nextStream();
  stream.text("Good ");
  await eventually(() => chat.answerText(), "Good");
  assert.equal(await status.textContent(), "Waiting for the answer");
  assert.equal(await chat.answers.last().getAttribute("aria-busy"), "true");
  stream.text("morning");
  stream.end();
  await eventually(() => status.textContent(), "Answer: Good morning");
  assert.equal(await chat.answers.last().getAttribute("aria-busy"), "false");
});

pageTest("one of several models can be chosen, and stays chosen", {}, async (chat, page) => {
  server.models = ["small", "large"];
  server.answer(echo);
  await page.reload();
  await page.getByLabel("Model").selectOption("large");
  await page.reload();
  await eventually(() => page.getByLabel("Model").inputValue(), "large");
  await chat.say("hi");
  await chat.finished();
  assert.equal(server.chats[0].model, "large");
});

pageTest("the end of a long answer stays in sight until the reader scrolls away", {}, async (chat, page) => {
  const fromEnd = () => page.evaluate(() => document.documentElement.scrollHeight - innerHeight - scrollY);
  await chat.say("list");
  const stream = await server.nextStream();
  const lines = (from) => stream.text(...Array.from({ length: 40 }, (_, i) => `- item ${from + i}\n`));
  lines(0);
  await page.getByText("item 39").waitFor();
  await eventually(fromEnd, (px) => px < 64);
  await page.mouse.move(500, 300);
  await page.mouse.wheel(0, -400);
  await eventually(fromEnd, (px) => px > 200);
  lines(40);
  await page.getByText("item 79").waitFor({ state: "attached" });
  await page.waitForTimeout(100);
  assert.ok((await fromEnd()) > 800, "the reader's place is kept");
  await page.getByRole("button", { name: "Scroll to the end" }).click();
  await eventually(fromEnd, (px) => px < 64);
  lines(80);
  await page.getByText("item 119").waitFor();
  await eventually(fromEnd, (px) => px < 64);
  stream.end();
  await chat.finished();
});

pageTest("a very long answer does not choke the page", {}, async (chat, page) => {
  const paragraph = "The **quick** brown `fox` jumps over the [lazy](https://example.org) dog.\n\n";
  server.answer(async (stream) => {
    for (let i = 0; i < 2000; i++) {
      stream.text(...paragraph.match(/.{1,12}/gs));
      if (i % 20 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    stream.end();
  });
  await chat.say("go");
  const first = await page.locator(".markdown .block").first().elementHandle();
  await chat.stop.waitFor({ state: "hidden", timeout: 60_000 });
  assert.equal(await page.locator(".markdown .block").count(), 2000);
  assert.equal(await first.evaluate((block) => block.isConnected), true, "what is finished is not drawn again");
});

pageTest("broken or foreign storage does not keep the page from starting", {}, async (chat, page) => {
  server.answer(echo);
  await page.evaluate(() => {
    localStorage.setItem("kvist.conversation", `[{"role":"assistant"}]`);
    localStorage.setItem("kvist.settings", "}{");
  });
  await page.reload();
  await chat.say("hi");
  await eventually(() => chat.answerText(), "echo: hi");
});
