#include "lab/roofline.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lab/markup.h"

namespace kvist::lab {
namespace {

constexpr double kWidth = 960, kHeight = 600, kLeft = 90, kRight = 930, kTop = 70, kBottom = 530;
constexpr double kLabelHeight = 15;

/// Decades around the values shown.
class Axis {
 public:
  Axis(double from, double to) : from_(from), to_(to) {}

  void Include(double value) {
    low_ = std::min(low_, std::floor(std::log10(value)));
    high_ = std::max(high_, std::ceil(std::log10(value)));
  }
  void Close() {
    if (low_ > high_) low_ = 0, high_ = 1;
    if (low_ == high_) high_ += 1;
  }
  double At(double value) const { return from_ + (std::log10(value) - low_) / (high_ - low_) * (to_ - from_); }
  int low() const { return static_cast<int>(low_); }
  int high() const { return static_cast<int>(high_); }
  double low_value() const { return std::pow(10.0, low_); }
  double high_value() const { return std::pow(10.0, high_); }

 private:
  double from_, to_;  ///< Pixels.
  double low_ = 300, high_ = -300;
};

/// "0.1", "10", "1k", "10G".
std::string Decade(int exponent) {
  if (exponent < 0) return fmt::format("{:g}", std::pow(10.0, exponent));
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  const int unit = std::min(exponent / 3, 5);
  return fmt::format("{:.0f}{}", std::pow(10.0, exponent - 3 * unit), kUnits[unit]);
}

std::string Text(double x, double y, std::string_view text, std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, EscapeMarkup(text));
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view kind) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1, y1, x2,
                     y2);
}

std::string Grid(const Axis& x, const Axis& y) {
  std::string out;
  for (int e = x.low(); e <= x.high(); ++e) {
    const double at = x.At(std::pow(10.0, e));
    out += Line(at, kTop, at, kBottom, "grid") + Text(at, kBottom + 20, Decade(e), " text-anchor=\"middle\"");
  }
  for (int e = y.low(); e <= y.high(); ++e) {
    const double at = y.At(std::pow(10.0, e));
    out += Line(kLeft, at, kRight, at, "grid") + Text(kLeft - 8, at + 4, Decade(e), " text-anchor=\"end\"");
  }
  out += Text((kLeft + kRight) / 2, kBottom + 48, "multiply-adds for each byte read", " text-anchor=\"middle\"");
  const double middle = (kTop + kBottom) / 2;
  out += Text(24, middle, "multiply-adds per second",
              fmt::format(" text-anchor=\"middle\" transform=\"rotate(-90 24 {:.1f})\"", middle));
  return out;
}

std::string Roofs(const Roofline& roofline, const Axis& x, const Axis& y) {
  std::string out;
  double highest = 0;
  for (const Roof& roof : roofline.roofs) {
    if (!(roof.multiply_adds_per_s > 0)) continue;
    highest = std::max(highest, roof.multiply_adds_per_s);
    const double ridge = std::clamp(roof.multiply_adds_per_s / roofline.bytes_per_s, x.low_value(), x.high_value());
    const double at = y.At(roof.multiply_adds_per_s);
    out += Line(x.At(ridge), at, kRight, at, "roof");
    out += Text(kRight, at - 6, fmt::format("{}: {:.3g} T/s", roof.label, roof.multiply_adds_per_s * 1e-12),
                " text-anchor=\"end\"");
  }
  // The slope, cut off where it leaves the picture.
  const double top = std::min(highest > 0 ? highest : y.high_value(), x.high_value() * roofline.bytes_per_s);
  const double left = std::max(x.low_value(), y.low_value() / roofline.bytes_per_s);
  const double x1 = x.At(left), y1 = y.At(left * roofline.bytes_per_s);
  const double x2 = x.At(top / roofline.bytes_per_s), y2 = y.At(top);
  out += Line(x1, y1, x2, y2, "roof");
  const double angle = std::atan2(y2 - y1, x2 - x1) * 180 / 3.14159265358979;
  const double xm = x1 + (x2 - x1) * 0.06, ym = y1 + (y2 - y1) * 0.06;
  out += Text(xm, ym - 8, fmt::format("memory: {:.3g} GB/s", roofline.bytes_per_s * 1e-9),
              fmt::format(" transform=\"rotate({:.1f} {:.1f} {:.1f})\"", angle, xm, ym - 8));
  return out;
}

/// Labels stand right of their points and move down until they hide none of those before.
std::string Points(const Roofline& roofline, const Axis& x, const Axis& y) {
  struct Placed {
    double left, right, y;
  };
  std::vector<Placed> placed;
  std::vector<const RooflinePoint*> points;
  for (const RooflinePoint& point : roofline.points) {
    if (point.multiply_adds_per_byte > 0 && point.multiply_adds_per_s > 0) points.push_back(&point);
  }
  std::ranges::sort(points, std::ranges::greater(), &RooflinePoint::multiply_adds_per_s);
  std::string out;
  for (const RooflinePoint* point : points) {
    const double px = x.At(point->multiply_adds_per_byte), py = y.At(point->multiply_adds_per_s);
    const double width = 7.5 * static_cast<double>(point->label.size());
    const bool to_left = px + 10 + width > kRight;
    Placed label{to_left ? px - 10 - width : px + 10, to_left ? px - 10 : px + 10 + width, py + 4};
    for (bool moved = true; moved;) {
      moved = false;
      for (const Placed& other : placed) {
        if (label.left < other.right && other.left < label.right && std::abs(label.y - other.y) < kLabelHeight - 0.5) {
          label.y = other.y + kLabelHeight;
          moved = true;
        }
      }
    }
    placed.push_back(label);
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\"/>\n", px, py);
    if (std::abs(label.y - py - 4) > kLabelHeight / 2)
      out += Line(px, py, to_left ? label.right : label.left, label.y - 4, "leader");
    out += Text(label.left, label.y, point->label, " class=\"point\"");
  }
  return out;
}

}  // namespace

std::string RooflineSvg(const Roofline& roofline) {
  Axis x(kLeft, kRight), y(kBottom, kTop);
  for (const RooflinePoint& point : roofline.points) {
    if (!(point.multiply_adds_per_byte > 0 && point.multiply_adds_per_s > 0)) continue;
    x.Include(point.multiply_adds_per_byte);
    y.Include(point.multiply_adds_per_s);
    if (roofline.bytes_per_s > 0) y.Include(point.multiply_adds_per_byte * roofline.bytes_per_s * 0.999);
  }
  for (const Roof& roof : roofline.roofs) {
    if (!(roof.multiply_adds_per_s > 0)) continue;
    y.Include(roof.multiply_adds_per_s);
    if (roofline.bytes_per_s > 0) x.Include(roof.multiply_adds_per_s / roofline.bytes_per_s);
  }
  x.Close();
  y.Close();
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\">\n"
      "<style>text{{font:13px sans-serif;fill:#222}} .title{{font-size:18px;font-weight:bold}} "
      ".point{{font-weight:bold}}\n"
      ".grid{{stroke:#ddd}} .roof{{stroke:#b3552d;stroke-width:2}} .leader{{stroke:#888}} "
      "circle{{fill:#2d6a4f}}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      kWidth, kHeight);
  out += Text(kLeft, 32, roofline.title, " class=\"title\"") + Text(kLeft, 54, roofline.subtitle);
  out += Grid(x, y);
  if (roofline.bytes_per_s > 0) out += Roofs(roofline, x, y);
  out += Points(roofline, x, y);
  return out + "</svg>\n";
}

}  // namespace kvist::lab
