#include "lab/load_html.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "lab/markup.h"
#include "serve/json_output.h"

namespace kvist::lab {
namespace {

constexpr double kWidth = 360, kHeight = 230, kLeft = 46, kRight = 350, kTop = 12, kBottom = 192;
constexpr size_t kPointsMax = 1500;

constexpr std::string_view kStyle = R"(
:root{--one:#0b62b5}
@media(prefers-color-scheme:dark){:root{--one:#6db3ff}}
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}
p{margin:.3rem 0}.dim{color:var(--dim)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;padding:0;list-style:none}
.figures li{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .7rem}.figures b{display:block;font-size:1.3rem}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:1rem}
figure{margin:0}figcaption{font-weight:600}svg{width:100%;height:auto;display:block}
svg text{font:11px system-ui,sans-serif;fill:var(--dim)}.grid{stroke:var(--line);stroke-width:1}
.curve{fill:none;stroke:var(--one);stroke-width:2}
.dot{fill:var(--one);fill-opacity:.55}
.scroll{overflow-x:auto}.scroll:focus-visible{outline:2px solid var(--one)}table{border-collapse:collapse;width:100%}
th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}.words{text-align:left}td.words{white-space:normal;min-width:12rem}
@media(max-width:480px){table{font-size:.85rem}th,td{padding:.25rem .3rem}th:first-child{white-space:normal}}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
)";

struct Point {
  double x, y;
};

/// The next number that is not below `value` and has short quarters.
double NiceCeiling(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double step : {1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0}) {
    if (step * power >= value) return step * power;
  }
  return 10 * power;
}

std::string Number(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value * 1e-6);
  if (value >= 1e4) return fmt::format("{:g}k", value * 1e-3);
  return fmt::format("{:g}", value);
}

/// One set of axes from zero up, and what is drawn in it.
class Plot {
 public:
  Plot(std::string title, std::string x_label, double x_max, double y_max)
      : title_(std::move(title)), x_label_(std::move(x_label)), x_max_(NiceCeiling(x_max)), y_max_(NiceCeiling(y_max)) {
    for (int i = 0; i <= 4; ++i) {
      const double share = i / 4.0, x = X(share * x_max_), y = Y(share * y_max_);
      body_ +=
          fmt::format("<line class=\"grid\" x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\"/>", x, kTop, x, kBottom);
      body_ +=
          fmt::format("<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>", kLeft, y, kRight, y);
      body_ += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text>", x, kBottom + 15,
                           i == 4 ? "end" : "middle", Number(share * x_max_));
      body_ += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 5, y + 4,
                           Number(share * y_max_));
    }
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>", (kLeft + kRight) / 2, kBottom + 31,
                         EscapeMarkup(x_label_));
  }

  void Curve(std::span<const Point> points) {
    body_ += "<polyline class=\"curve\" points=\"";
    const size_t step = points.size() / kPointsMax + 1;
    for (size_t i = 0; i < points.size(); i += step)
      body_ += fmt::format("{:.1f},{:.1f} ", X(points[i].x), Y(points[i].y));
    if (!points.empty()) body_ += fmt::format("{:.1f},{:.1f}", X(points.back().x), Y(points.back().y));
    body_ += "\"/>";
  }

  void Dots(std::span<const Point> points) {
    const size_t step = points.size() / kPointsMax + 1;
    for (size_t i = 0; i < points.size(); i += step) {
      body_ +=
          fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", X(points[i].x), Y(points[i].y));
    }
  }

  /// @param words  what a reader who sees no picture is told
  std::string Figure(std::string_view words) const {
    return fmt::format(
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>"
        "<p class=\"dim\">{}</p></figure>\n",
        EscapeMarkup(title_), kWidth, kHeight, EscapeMarkup(title_ + ". " + std::string(words)), body_,
        EscapeMarkup(words));
  }

 private:
  double X(double x) const { return kLeft + std::clamp(x / x_max_, 0.0, 1.0) * (kRight - kLeft); }
  double Y(double y) const { return kBottom - std::clamp(y / y_max_, 0.0, 1.0) * (kBottom - kTop); }

  std::string title_, x_label_;
  double x_max_, y_max_;
  std::string body_;
};

std::string Words(const Distribution& d) {
  if (d.count == 0) return "No values.";
  return fmt::format("Half below {:.1f} ms, 90 % below {:.1f}, 99 % below {:.1f}, at most {:.1f}.", d.p50 * 1e3,
                     d.p90 * 1e3, d.p99 * 1e3, d.max * 1e3);
}

/// Share of values that are at most x.
std::string Cumulative(const std::string& title, std::vector<double> seconds, const Distribution& d) {
  std::ranges::sort(seconds);
  std::vector<Point> points{{0, 0}};
  for (size_t i = 0; i < seconds.size(); ++i) {
    points.push_back({seconds[i] * 1e3, 100 * static_cast<double>(i + 1) / static_cast<double>(seconds.size())});
  }
  Plot plot(title, "across ms, upwards the share of all in %", d.max * 1e3, 100);
  plot.Curve(points);
  return plot.Figure(Words(d));
}

std::vector<double> Collect(const LoadResult& result,
                            const std::function<void(const LoadRecord&, std::vector<double>&)>& add) {
  std::vector<double> values;
  for (const LoadRecord& record : result.records) {
    if (record.answered()) add(record, values);
  }
  return values;
}

/// Text that came and requests that were under way, in equal parts of the run.
std::string Timelines(const LoadReport& report) {
  const double end = std::max(report.summary.duration_s, 1e-3);
  constexpr size_t kBuckets = 60;
  const double width = end / kBuckets;
  double first = std::numeric_limits<double>::infinity();
  for (const LoadRecord& record : report.result.records) first = std::min(first, record.due_s);
  std::vector<Point> pieces(kBuckets), running(kBuckets);
  for (size_t i = 0; i < kBuckets; ++i) pieces[i].x = running[i].x = (static_cast<double>(i) + 0.5) * width;
  const auto bucket = [&](double at_s) {
    return static_cast<size_t>(std::clamp((at_s - first) / width, 0.0, kBuckets - 1.0));
  };
  for (const LoadRecord& record : report.result.records) {
    for (const double at_s : record.text_s) pieces[bucket(at_s)].y += 1 / width;
    for (size_t i = bucket(record.sent_s); i <= bucket(record.end_s); ++i) ++running[i].y;
  }
  const auto draw = [end](std::string title, std::string label, const std::vector<Point>& points,
                          const std::string& words) {
    Plot plot(std::move(title), std::move(label), end, std::ranges::max(points, {}, &Point::y).y);
    plot.Curve(points);
    return plot.Figure(words);
  };
  return draw("Text over time", "across s, upwards pieces of text per s", pieces,
              fmt::format("{:.1f} output tokens per second on average.", report.summary.all.output_tokens_per_s)) +
         draw("Requests under way", "across s, upwards requests", running,
              fmt::format("At most {} at once.", report.summary.running_max));
}

std::string Scatter(const LoadReport& report) {
  std::vector<Point> points;
  double x_max = 0, y_max = 0;
  for (const LoadRecord& record : report.result.records) {
    const auto ttft = record.ttft_s();
    if (!record.answered() || !ttft) continue;
    points.push_back({double{1} * (record.prompt_tokens - record.cached_tokens), *ttft * 1e3});
    x_max = std::max(x_max, points.back().x);
    y_max = std::max(y_max, points.back().y);
  }
  Plot plot("First token by prompt tokens not cached", "across tokens, upwards ms to the first one", x_max, y_max);
  plot.Dots(points);
  return plot.Figure(fmt::format("{} answered requests, each a dot.", points.size()));
}

/// On a phone it may be wider than the page: then it is scrolled, by keys too.
std::string TableBegin(std::string_view name) {
  return fmt::format("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table>", name);
}

std::string TableRow(std::string_view name, const Distribution& d) {
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}</td></tr>\n",
      name, d.mean * 1e3, d.p50 * 1e3, d.p90 * 1e3, d.p99 * 1e3, d.max * 1e3);
}

std::string Figures(const LoadReport& report) {
  const LoadFigures& all = report.summary.all;
  std::string out = "<ul class=\"figures\">";
  const auto item = [&](std::string_view value, std::string_view what) {
    out += fmt::format("<li><b>{}</b>{}</li>", value, what);
  };
  item(fmt::format("{} of {}", all.answered(), all.requests), "requests answered");
  item(fmt::format("{:.1f}", all.output_tokens_per_s), "output tokens/s");
  item(fmt::format("{:.2f}", all.requests_per_s), "answers/s");
  item(fmt::format("{:.1f} %", 100 * all.good_share()), "within the goal");
  item(fmt::format("{}", all.prompt_tokens), "prompt tokens");
  item(fmt::format("{}", all.cached_tokens), "of them cached");
  out +=
      "</ul>\n<h2>Times in ms</h2>" + TableBegin("Times") +
      "<tr><th scope=\"col\">of</th><th scope=\"col\">mean</th>"
      "<th scope=\"col\">P50</th><th scope=\"col\">P90</th><th scope=\"col\">P99</th><th scope=\"col\">max</th></tr>\n";
  out += TableRow("first token (TTFT)", all.ttft_s) + TableRow("per token (TPOT)", all.tpot_s) +
         TableRow("between tokens (ITL)", all.itl_s) + TableRow("whole answer", all.e2e_s) +
         TableRow("sent too late by", all.lag_s);
  return out + "</table></div>\n";
}

std::string Tenants(const LoadReport& report) {
  if (report.tenants.size() < 2) return {};
  std::string out =
      "<h2>Tenants</h2>" + TableBegin("Tenants") +
      "<tr><th scope=\"col\">tenant</th><th scope=\"col\">requests</th>"
      "<th scope=\"col\">answered</th><th scope=\"col\">good</th><th scope=\"col\">tokens/s</th><th scope=\"col\">TTFT "
      "P99 ms</th></tr>\n";
  for (size_t i = 0; i < report.tenants.size(); ++i) {
    const LoadFigures& figures = report.summary.tenants[i];
    out += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{:.1f} %</td><td>{:.1f}</td><td>{}</td></tr>\n",
        EscapeMarkup(report.tenants[i]), figures.requests, figures.answered(), 100 * figures.good_share(),
        figures.output_tokens_per_s, figures.ttft_s.count == 0 ? "–" : fmt::format("{:.1f}", figures.ttft_s.p99 * 1e3));
  }
  out += "</table></div>";
  if (report.summary.all.answered() == 0) return out;
  return out + fmt::format(
                   "<p>Jain's index of tokens/s {:.3f}, of good answers {:.3f}; smallest by largest "
                   "{:.3f} and {:.3f}.</p>\n",
                   report.summary.jain_tokens, report.summary.jain_good, report.summary.min_max_tokens,
                   report.summary.min_max_good);
}

std::string Faults(const LoadReport& report) {
  const std::vector<LoadFault> faults = FaultsOf(report.result);
  if (faults.empty()) return {};
  std::string out = "<h2>Not answered</h2>" + TableBegin("Not answered") +
                    "<tr><th scope=\"col\">kind</th><th scope=\"col\">status</th>"
                    "<th scope=\"col\">count</th><th scope=\"col\" class=\"words\">what was said</th></tr>\n";
  for (const LoadFault& fault : faults) {
    out += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"words\">{}</td></tr>\n",
                       LoadOutcomeName(fault.outcome), fault.status, fault.count, EscapeMarkup(fault.why));
  }
  return out + "</table></div>\n";
}

}  // namespace

std::string LoadHtml(const LoadReport& report) {
  const LoadFigures& all = report.summary.all;
  std::string out = HtmlHead("Load test", kStyle);
  out += fmt::format("<main><h1>Load test of {}</h1><p class=\"dim\">{}{}{:.1f} s{}</p>\n", EscapeMarkup(report.url),
                     EscapeMarkup(report.model), report.model.empty() ? "" : ", ", report.summary.duration_s,
                     report.result.interrupted ? ", interrupted" : "");
  out += Figures(report);
  out += "<h2>Plots</h2><div class=\"plots\">\n";
  using Values = std::vector<double>;
  out += Cumulative("Time to the first token",
                    Collect(report.result,
                            [](const LoadRecord& r, Values& v) {
                              if (const auto ttft = r.ttft_s()) v.push_back(*ttft);
                            }),
                    all.ttft_s);
  out += Cumulative("Time per output token",
                    Collect(report.result,
                            [](const LoadRecord& r, Values& v) {
                              if (const auto tpot = r.tpot_s()) v.push_back(*tpot);
                            }),
                    all.tpot_s);
  out += Cumulative("Time between pieces of text",
                    Collect(report.result,
                            [](const LoadRecord& r, Values& v) {
                              for (size_t i = 1; i < r.text_s.size(); ++i) v.push_back(r.text_s[i] - r.text_s[i - 1]);
                            }),
                    all.itl_s);
  out += Cumulative("Whole answer",
                    Collect(report.result, [](const LoadRecord& r, Values& v) { v.push_back(r.e2e_s()); }), all.e2e_s);
  out += Timelines(report) + Scatter(report) + "</div>\n" + Tenants(report) + Faults(report);
  out += fmt::format("<h2>Settings</h2><pre>{}</pre>\n", EscapeMarkup(serve::JsonText(report.settings)));
  return out + "</main></body></html>\n";
}

}  // namespace kvist::lab
