#pragma once

/// @file
/// A roofline picture as SVG: what was reached over what memory and arithmetic allow, both axes logarithmic. No
/// dependency, one string. Pure; any thread.
/// Source: Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52(4), 2009.

#include <string>
#include <vector>

namespace kvist::lab {

struct Roof {
  std::string label;  ///< e.g. "amx int8".
  double multiply_adds_per_s = 0;
};

struct RooflinePoint {
  std::string label;                  ///< e.g. "tg128".
  double multiply_adds_per_byte = 0;  ///< Of what must be read.
  double multiply_adds_per_s = 0;     ///< Reached.
};

struct Roofline {
  std::string title, subtitle;
  double bytes_per_s = 0;   ///< Slope of the roof's left part.
  std::vector<Roof> roofs;  ///< Horizontal lines.
  std::vector<RooflinePoint> points;
};

/// An SVG document of 960 x 600. Numbers that are not positive are left out.
std::string RooflineSvg(const Roofline& roofline);

}  // namespace kvist::lab
