import { defineConfig } from "vite";

// Where `npm run dev` sends API requests: a running kvist.
const server = process.env["KVIST_URL"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  base: "./", // The page also works below a path prefix of a reverse proxy.
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // The content security policy has no room for data: URLs.
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { proxy: { "/v1": server, "/health": server } },
});
