// Shows a growing Markdown text. What a model writes is untrusted: HTML in it is shown as text, images become links
// (loading one would tell a stranger what is being read), and the result passes a sanitizer with a short list of tags.

import DOMPurify from "dompurify";
import { Marked, type Token, type TokensList } from "marked";

const kSanitize = {
  ALLOWED_TAGS: [
    "p",
    "br",
    "strong",
    "em",
    "del",
    "code",
    "pre",
    "blockquote",
    "ul",
    "ol",
    "li",
    "hr",
    "a",
    "h3",
    "h4",
    "h5",
    "h6",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
  ],
  ALLOWED_ATTR: ["href", "title", "align", "start", "data-language"],
  ADD_URI_SAFE_ATTR: ["align", "start", "data-language"], // The others are checked as addresses, and dropped.
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  RETURN_DOM_FRAGMENT: true as const,
};

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

const marked = new Marked({
  gfm: true,
  breaks: true, // Small models end lines where they mean to.
  renderer: {
    html: ({ text }) => escapeHtml(text),
    image: ({ href, text }) => `<a href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    // The page's own headings are h1 and h2; an answer's outline goes below them.
    heading({ tokens, depth }) {
      const level = Math.min(depth + 2, 6);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
    code: ({ text, lang }) =>
      `<pre data-language="${escapeHtml((lang ?? "").split(/\s/)[0] ?? "")}"><code>${escapeHtml(text)}</code></pre>`,
  },
});

/** Called for every code block, to let the page add its controls. */
export type DecorateCode = (pre: HTMLPreElement, language: string) => void;

/**
 * Renders into `root`, one child per top-level block. A later text redraws only the blocks that changed, so that a
 * selection in the finished part of a growing answer survives and the work per update stays small.
 */
export class MarkdownView {
  private blocks: { raw: string; element: HTMLElement }[] = [];
  private links = "";

  constructor(
    private readonly root: HTMLElement,
    private readonly decorateCode: DecorateCode,
  ) {}

  update(text: string): void {
    const tokens = marked.lexer(text);
    const links = JSON.stringify(tokens.links);
    const linksChanged = links !== this.links; // A definition changes blocks far above it.
    this.links = links;

    const shown = tokens.filter((token) => token.type !== "space" && token.type !== "def");
    let same = 0;
    if (!linksChanged) {
      while (same < shown.length && same < this.blocks.length && shown[same]!.raw === this.blocks[same]!.raw) same++;
    }
    for (const block of this.blocks.splice(same)) block.element.remove();
    for (const token of shown.slice(same)) {
      const element = this.render(token, tokens.links);
      this.root.append(element);
      this.blocks.push({ raw: token.raw, element });
    }
  }

  private render(token: Token, links: TokensList["links"]): HTMLElement {
    const html = marked.parser(Object.assign([token], { links }));
    const block = document.createElement("div");
    block.className = "block";
    block.append(DOMPurify.sanitize(html, kSanitize));
    for (const link of block.querySelectorAll("a")) {
      link.target = "_blank";
      link.rel = "noopener noreferrer";
    }
    for (const table of block.querySelectorAll("table")) {
      const scroll = document.createElement("div");
      scroll.className = "table";
      table.replaceWith(scroll);
      scroll.append(table);
    }
    for (const pre of block.querySelectorAll("pre")) {
      const language = pre.dataset["language"] ?? "";
      this.decorateCode(pre, language);
    }
    return block;
  }
}
