#pragma once

/// @file
/// A value that changes with size: straight lines between points over the logarithm of the size, level outside them.
/// Efficiencies of processors and links are such curves. Threads: any.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace kvist::device {

class Curve {
 public:
  struct Point {
    double size, value;
  };

  /// The same everywhere.
  explicit Curve(double value = 1) : points_{{0, value}} {}
  /// REQUIRES: at least one point, sizes above 0 and rising.
  explicit Curve(const std::vector<Point>& points) : points_(points) {
    for (Point& point : points_) point.size = std::log(point.size);
  }

  /// The points, sizes as they were given.
  std::vector<Point> Points() const {
    std::vector<Point> points = points_;
    for (Point& point : points) point.size = std::exp(point.size);
    return points;
  }

  /// The same with every value scaled by `factor` x (size / `pivot`)^`tilt`, but no more than `most`.
  Curve Scaled(double factor, double tilt, double pivot, double most) const {
    std::vector<Point> points = Points();
    for (Point& point : points) {
      point.value = std::min(most, point.value * factor * std::pow(point.size / pivot, tilt));
    }
    return Curve(points);
  }

  /// The same for sizes that are `factor` times as large.
  Curve Stretched(double factor) const {
    std::vector<Point> points = Points();
    for (Point& point : points) point.size *= factor;
    return Curve(points);
  }

  double At(double size) const {
    if (points_.size() == 1) return points_.front().value;
    const double log = std::log(std::max(size, 1e-300));
    if (log <= points_.front().size) return points_.front().value;
    for (size_t i = 1; i < points_.size(); ++i) {
      if (log > points_[i].size) continue;
      const Point &a = points_[i - 1], &b = points_[i];
      return a.value + (b.value - a.value) * (log - a.size) / (b.size - a.size);
    }
    return points_.back().value;
  }

 private:
  std::vector<Point> points_;  ///< Sizes as logarithms.
};

}  // namespace kvist::device
