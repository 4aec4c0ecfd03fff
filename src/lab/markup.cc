#include "lab/markup.h"

#include "base/status.h"

namespace kvist::lab {

std::string EscapeMarkup(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) out += c;  // Others are no XML.
    }
  }
  return out;
}

std::string HtmlHead(std::string_view title, std::string_view style) {
  constexpr std::string_view kCommonStyle = R"(
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#5c6570;--line:#d5dae0;--ground:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e8ebee;--dim:#a3adb8;--line:#3a424b;--ground:#14181c}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1100px;padding:1rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground)}
)";
  return Cat("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" ",
             "content=\"width=device-width,initial-scale=1\"><title>", EscapeMarkup(title), "</title><style>",
             kCommonStyle, style, "</style></head><body>");
}

}  // namespace kvist::lab
