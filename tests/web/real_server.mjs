// `kvist serve` for a test: started on a free port, ended in good order.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { eventually } from "./browser.mjs";

const kStopMs = 20_000;

export class RealServer {
  #process;

  /** Answers at `this.url` when it comes back. @param flags  of `kvist serve`, the model among them */
  async start(binary, flags, timeoutMs) {
    const probe = createServer().listen(0, "127.0.0.1");
    await once(probe, "listening");
    const { port } = probe.address();
    probe.close();
    await once(probe, "close");
    const args = ["serve", ...flags, "--host", "127.0.0.1", "--port", String(port)];
    this.#process = spawn(binary, args, { stdio: ["ignore", "inherit", "inherit"] });
    this.url = `http://127.0.0.1:${port}/`;
    await eventually(
      async () => {
        if (this.#process.exitCode !== null) {
          throw new Error(`${binary} ${args.join(" ")} ended with ${this.#process.exitCode}`);
        }
        return fetch(new URL("health", this.url)).then(
          (response) => response.ok,
          () => false,
        );
      },
      true,
      timeoutMs,
    );
  }

  async stop() {
    if (this.#process === undefined || this.#process.exitCode !== null) return;
    const gone = once(this.#process, "exit");
    this.#process.kill("SIGTERM");
    const kill = setTimeout(() => this.#process.kill("SIGKILL"), kStopMs);
    const [code] = await gone;
    clearTimeout(kill);
    assert.equal(code, 0, "the server shuts down in good order");
  }
}
