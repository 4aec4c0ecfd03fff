#include "lab/claim_html.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lab/markup.h"

namespace kvist::lab {
namespace {

constexpr double kBarWidth = 200;

constexpr std::string_view kStyle = R"(
:root{--met:#1a7f37;--short:#b35900}
@media(prefers-color-scheme:dark){:root{--met:#4ac26b;--short:#f0a04b}}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin:1.6rem 0 .3rem}
article{border-top:1px solid var(--line);padding:.5rem 0;display:grid;grid-template-columns:minmax(0,1fr) 210px;gap:.2rem 1rem}
article p{margin:0}.dim{color:var(--dim);font-size:.9rem;overflow-wrap:anywhere}
.met{color:var(--met)}.short{color:var(--short)}.met rect{fill:var(--met)}.short rect{fill:var(--short)}
svg line{stroke:var(--ink);stroke-width:2}
@media(max-width:640px){article{grid-template-columns:1fr}}
)";

std::string Figure(double value) {
  return fmt::format("{:.4g}", value);
}

/// A bar as long as the figure, and a line where the bound is; both from zero, or from the lower one where it is below.
std::string Bar(const ClaimResult& result) {
  const double bound = ParseClaimBound(result.accept).value_or(ClaimBound{}).value;
  const double low = std::min({0.0, bound, result.measured}), high = std::max({bound, result.measured, low + 1e-12});
  const auto at = [&](double value) { return (value - low) / (high - low) * (kBarWidth - 4) + 2; };
  const double from = std::min(at(0), at(result.measured)), to = std::max(at(0), at(result.measured));
  return fmt::format(
      R"(<svg viewBox="0 0 {} 22" width="{}" height="22" role="img" aria-label="measured {} {}, wanted {}"><rect x="{:.1f}" y="5" width="{:.1f}" height="12"/><line x1="{:.1f}" x2="{:.1f}" y1="1" y2="21"/></svg>)",
      kBarWidth, kBarWidth, Figure(result.measured), EscapeMarkup(result.unit), EscapeMarkup(result.accept), from,
      std::max(to - from, 1.0), at(bound), at(bound));
}

void AppendClaim(const ClaimRecord& record, std::string& out) {
  const ClaimResult& result = record.result;
  std::string state(ClaimStateName(result.state));
  std::ranges::replace(state, '_', ' ');
  out += fmt::format(R"(<article class="{}"><div><p><b>{}</b></p>)", ClaimStateName(result.state),
                     EscapeMarkup(result.text));
  if (!result.conditions.empty()) out += fmt::format(R"(<p class="dim">{}</p>)", EscapeMarkup(result.conditions));
  if (!result.why.empty()) out += fmt::format(R"(<p class="dim">{}</p>)", EscapeMarkup(result.why));
  out += fmt::format(R"(<p class="dim">{}{}{}</p></div><div>)", EscapeMarkup(result.name),
                     record.commit.empty() ? "" : ", at ", EscapeMarkup(record.commit));
  if (result.IsMeasured()) {
    out += Bar(result);
    out += fmt::format("<p>{}: {} {} (wanted {})</p>", state, Figure(result.measured), EscapeMarkup(result.unit),
                       EscapeMarkup(result.accept));
  } else {
    out += fmt::format("<p>{}</p>", state);
  }
  out += "</div></article>\n";
}

}  // namespace

std::string ClaimsHtml(const std::vector<ClaimFile>& files, const std::vector<ClaimRecord>& records) {
  const auto count = [&](ClaimState state) {
    return std::ranges::count_if(records, [&](const ClaimRecord& r) { return r.result.state == state; });
  };
  std::string out = HtmlHead("kvist: claims", kStyle);
  out += fmt::format(
      "<main><h1>Claims</h1><p>{} met, {} short, {} not comparable, {} not run. The line in each bar is the bound.</p>"
      "\n",
      count(ClaimState::kMet), count(ClaimState::kShort), count(ClaimState::kNotComparable),
      count(ClaimState::kNotRun));
  for (const ClaimFile& file : files) {
    const auto of_file = [&](const ClaimRecord& record) { return record.result.id == file.id; };
    if (std::ranges::none_of(records, of_file)) continue;
    out += fmt::format("<section><h2>{}: {}</h2>\n", EscapeMarkup(file.id), EscapeMarkup(file.title));
    for (const ClaimRecord& record : records) {
      if (of_file(record)) AppendClaim(record, out);
    }
    out += "</section>\n";
  }
  return out + "</main></body></html>\n";
}

}  // namespace kvist::lab
