// Separates a model's reasoning from its answer, so that the page can fold it.

export interface Parts {
  thinking: string | null; // null = the model did not reason in the open.
  thinkingOpen: boolean; // Still reasoning: the closing tag has not come yet.
  answer: string;
}

const kOpen = "<think>";
const kClose = "</think>";

/** Splits `text`, complete or still growing. Only reasoning that comes before the answer counts. */
export function splitThinking(text: string): Parts {
  const start = text.trimStart();
  if (start.startsWith(kOpen)) {
    const close = start.indexOf(kClose);
    const open = close < 0;
    const thinking = start.slice(kOpen.length, open ? undefined : close).trim();
    // Some templates have the model write an empty pair of tags to say that it did not reason.
    return {
      thinking: thinking === "" && !open ? null : thinking,
      thinkingOpen: open,
      answer: open ? "" : start.slice(close + kClose.length).trimStart(),
    };
  }
  // The first characters may still become the tag; showing them would make it flash.
  if (start !== "" && kOpen.startsWith(start)) return { thinking: null, thinkingOpen: false, answer: "" };
  // Some templates put the opening tag into the prompt, and the model writes the closing one only, on a line of its own.
  const lone = /^[ \t]*<\/think>[ \t]*$/m.exec(text);
  if (lone !== null && !text.includes(kOpen)) {
    const answer = text.slice(lone.index + lone[0].length).trimStart();
    return { thinking: text.slice(0, lone.index).trim() || null, thinkingOpen: false, answer };
  }
  return { thinking: null, thinkingOpen: false, answer: text };
}
