import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

// Where `npm run dev` sends API requests: a running kvist.
const server = process.env["KVIST_URL"] ?? "http://127.0.0.1:8080";

/** The libraries in the page ask that their notices travel with them. */
const licenses: Plugin = {
  name: "licenses",
  apply: "build",
  generateBundle() {
    const files = ["dompurify/LICENSE", "marked/LICENSE.md"];
    const notice = (file: string) => `==== ${file}\n\n${readFileSync(`node_modules/${file}`, "utf8").trim()}\n`;
    this.emitFile({ type: "asset", fileName: "licenses.txt", source: files.map(notice).join("\n") });
  },
};

/** The server serves dashboard.html at /dashboard. */
const dashboardPath: Plugin = {
  name: "dashboard-path",
  apply: "serve",
  configureServer({ middlewares }) {
    middlewares.use((request, _response, next) => {
      if (request.url === "/dashboard") request.url = "/dashboard.html";
      next();
    });
  },
};

export default defineConfig({
  base: "./", // The pages also work below a path prefix of a reverse proxy.
  plugins: [licenses, dashboardPath],
  build: {
    rollupOptions: { input: ["index.html", "dashboard.html"] },
    target: "es2022",
    assetsInlineLimit: 0, // The content security policy has no room for data: URLs.
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { proxy: { "/v1": server, "/health": server, "/kvist": server } },
});
