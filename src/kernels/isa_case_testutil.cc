#include "kernels/isa_case_testutil.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/status.h"
#include "kernels/attention_testutil.h"
#include "kernels/packed.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace kvist::kernels::testing {
namespace {

constexpr float kUntouched = 12345.0f;

/// A case being read. Numbers beyond its end are drawn from a generator that the bytes seed.
class Case {
 public:
  explicit Case(std::span<const uint8_t> bytes) : bytes_(bytes), prng_(SeedOf(bytes)) {}

  Prng& prng() { return prng_; }

  uint8_t Byte() {
    if (at_ < bytes_.size()) return bytes_[at_++];
    return static_cast<uint8_t>(prng_.Next());
  }
  uint32_t Below(uint32_t bound) {
    uint32_t value = Byte();
    if (bound > 256) value = value << 8 | Byte();
    return value % bound;
  }
  uint32_t From1To(uint32_t most) { return 1 + Below(most); }

  Numbers Kind() { return static_cast<Numbers>(Below(3)); }

  /// Puts bytes of the case to places that it names. @return whether there were any.
  bool Edit(std::span<std::byte> out, uint32_t unit) {
    const uint32_t edits = Below(12);
    for (uint32_t i = 0; i < edits && out.size() >= unit; ++i) {
      const size_t place = Below(1 << 16) % (out.size() / unit) * unit;
      for (uint32_t b = 0; b < unit; ++b) out[place + b] = std::byte{Byte()};
    }
    return edits > 0;
  }

  std::vector<float> Floats(size_t n, Numbers kind) {
    constexpr float kSpecial[] = {0.0f,   -0.0f,   0x1p-149f, -0x1p-127f, 0x1p-126f, 0x1p-121f, 0x1p-120f, 1.0f,
                                  126.5f, -127.0f, 65519.0f,  65520.0f,   3.4e38f,   -3.4e38f,  88.73f,    -104.0f};
    std::vector<float> out = RandomRow(kind, n, prng_);
    if (kind == Numbers::kPlain) return out;
    if (Below(4) == 0) {
      for (float& x : out) x = kSpecial[prng_.Below(std::size(kSpecial))];
    }
    Edit(std::as_writable_bytes(std::span(out)), sizeof(float));
    return out;
  }

 private:
  static uint64_t SeedOf(std::span<const uint8_t> bytes) {
    uint64_t seed = bytes.size();
    for (uint8_t byte : bytes) seed = Mix64(seed ^ byte);
    return seed;
  }

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  Prng prng_;
};

// --- matrix products ---

struct MatMulCase {
  DType dtype;
  uint32_t rows, cols, tokens, group_begin, group_end;
  bool plain;  ///< Neither weights nor activations beyond the usual.
  std::vector<std::byte> source;
  std::vector<float> x;
};

MatMulCase ReadMatMul(Case& bytes) {
  constexpr uint32_t kWork = 1 << 20;  // Multiplications of the reference, for the sake of many cases a second.
  MatMulCase c{};
  c.dtype = AllTypes()[bytes.Below(static_cast<uint32_t>(AllTypes().size()))];
  const uint32_t block = InfoOf(c.dtype).block_elements;
  c.cols = block == 256 ? 256 * bytes.From1To(10) : block == 32 ? 32 * bytes.From1To(72) : bytes.From1To(2200);
  c.rows = bytes.From1To(50);
  c.tokens = std::min(bytes.From1To(70), std::max(1u, kWork / (c.rows * c.cols)));
  const uint32_t groups = RowGroups(c.rows);
  c.group_begin = bytes.Below(groups);
  c.group_end = c.group_begin + bytes.From1To(groups - c.group_begin);
  const Numbers weights = bytes.Kind(), activations = bytes.Kind();
  c.plain = weights == Numbers::kPlain && activations == Numbers::kPlain;
  if (weights == Numbers::kPlain) {
    c.source = RandomMatrix(c.dtype, c.rows, c.cols, bytes.prng());
  } else {
    c.source = RandomBits(c.dtype, c.rows, c.cols, bytes.prng());
    if (weights == Numbers::kBroken) std::ranges::fill(c.source, std::byte{bytes.Byte()});
    bytes.Edit(c.source, 1);
  }
  c.x = bytes.Floats(size_t{c.tokens} * c.cols, activations);
  return c;
}

/// Empty when two rows of quantize_rows hold the same.
std::string DifferenceOfActivations(const Activations& got, const Activations& expected, uint32_t tokens,
                                    uint32_t cols) {
  const size_t q_bytes = (cols + 63) / 64 * 64;
  for (uint32_t t = 0; t < tokens; ++t) {
    const std::byte *a = got.bytes.data() + t * got.stride, *b = expected.bytes.data() + t * expected.stride;
    if (std::memcmp(a, b, q_bytes) != 0) return Cat("quantised activations of token ", t);
    const size_t floats = (got.stride - q_bytes) / sizeof(float);
    const std::string difference = Difference({reinterpret_cast<const float*>(a + q_bytes), floats},
                                              {reinterpret_cast<const float*>(b + q_bytes), floats});
    if (!difference.empty()) return Cat("scales of activations of token ", t, ": ", difference);
  }
  return "";
}

/// @return y [tokens][rows + 3], untouched outside of the groups.
std::vector<float> Product(const KernelTable& kernels, const PackedMatrix& w, const Activations& x, uint32_t tokens,
                           uint32_t group_begin, uint32_t group_end) {
  std::vector<float> y(size_t{tokens} * (w.rows + 3), kUntouched);
  kernels.matmul(w, x.bytes.data(), x.stride, tokens, group_begin, group_end, y.data(), w.rows + 3);
  return y;
}

/// F16 and BF16 on tiles beside the reference, for plain numbers: two bf16 numbers leave 2^-16 of an activation, F16
/// leaves out the product of the low numbers, 2^-14 of a product; then the f32 chain, and what tiles flush.
std::string FarFromReference(const MatMulCase& c, const std::vector<float>& got, const std::vector<float>& expected) {
  std::vector<float> row(c.cols);
  for (uint32_t r = c.group_begin * kRowGroup; r < std::min(c.rows, c.group_end * kRowGroup); ++r) {
    DequantizeRow(c.dtype, c.source.data() + r * RowBytes(c.dtype, c.cols), c.cols, row.data());
    for (uint32_t t = 0; t < c.tokens; ++t) {
      double mass = 0, flushed = 0;
      for (uint32_t k = 0; k < c.cols; ++k) {
        const double w = std::abs(double{row[k]}), x = std::abs(double{c.x[size_t{t} * c.cols + k]});
        mass += w * x;
        flushed += 0x1p-126 * (w + x + 4);
      }
      const double bound = ((c.dtype == DType::kF16 ? 0x1p-14 : 0x1p-16) + (c.cols + 4) * 0x1p-24) * mass + flushed;
      const size_t at = size_t{t} * (c.rows + 3) + r;
      if (!(mass < 1e38) || std::abs(double{got[at]} - expected[at]) <= bound) continue;
      return Cat("row ", r, " of token ", t, " is ", got[at], ", expected ", expected[at], " within ", bound);
    }
  }
  return "";
}

/// A token alone, group by group, beside itself in the batch.
std::string DifferenceOfOneToken(const KernelTable& kernels, const MatMulCase& c, const PackedMatrix& w,
                                 const std::vector<float>& batch, uint32_t token) {
  const auto first = c.x.begin() + static_cast<std::ptrdiff_t>(size_t{token} * c.cols);
  const Activations one = MakeActivations(kernels, c.dtype, {first, first + c.cols}, 1, c.cols);
  std::vector<float> alone(w.rows + 3, kUntouched);
  for (uint32_t group = c.group_end; group-- > c.group_begin;) {
    kernels.matmul(w, one.bytes.data(), one.stride, 1, group, group + 1, alone.data(), w.rows + 3);
  }
  return Difference(alone, std::span(batch).subspan(size_t{token} * (w.rows + 3), w.rows + 3));
}

std::string MatMulDifference(Case& bytes) {
  const MatMulCase c = ReadMatMul(bytes);
  const OwnedMatrix w = Pack(c.dtype, c.source, c.rows, c.cols);
  const KernelTable& reference = KernelsFor(Isa::kReference);
  const Activations activations = MakeActivations(reference, c.dtype, c.x, c.tokens, c.cols);
  const std::vector<float> expected = Product(reference, w.matrix, activations, c.tokens, c.group_begin, c.group_end);
  const std::vector<Isa> like = FastIsasLikeReference(c.dtype);
  const uint32_t token = bytes.Below(c.tokens);
  for (Isa isa : FastIsas()) {
    const KernelTable& kernels = KernelsFor(isa);
    const std::string where = Cat("matmul ", IsaName(isa), " ", InfoOf(c.dtype).name, " rows ", c.rows, " cols ",
                                  c.cols, " tokens ", c.tokens, " groups ", c.group_begin, " to ", c.group_end, ": ");
    const Activations own = MakeActivations(kernels, c.dtype, c.x, c.tokens, c.cols);
    std::string difference;
    if (UsesQuantizedActivations(c.dtype)) difference = DifferenceOfActivations(own, activations, c.tokens, c.cols);
    if (!difference.empty()) return where + difference;
    const std::vector<float> y = Product(kernels, w.matrix, own, c.tokens, c.group_begin, c.group_end);
    if (std::ranges::find(like, isa) != like.end()) {
      difference = Difference(y, expected);
    } else if (c.plain) {
      difference = FarFromReference(c, y, expected);
    }
    if (!difference.empty()) return where + difference;
    difference = DifferenceOfOneToken(kernels, c, w.matrix, y, token);
    if (!difference.empty()) return Cat(where, "token ", token, " alone: ", difference);
  }
  return "";
}

// --- attention ---

struct AttendCase {
  uint32_t tokens, group;
  float softcap;
  bool plain;   ///< Numbers as usual everywhere.
  bool finite;  ///< Every number of a page is.
  std::vector<float> queries;
  std::vector<uint64_t> visible;
};

/// What a causal chunk at the end of a view sees, with a window or without, where the last block may not be full.
std::vector<uint64_t> ChunkVisible(const AttendProblem& p, uint32_t tokens, Case& bytes) {
  const uint32_t view = p.blocks * kPageTokens - bytes.Below(kPageTokens);
  const uint32_t window = bytes.Below(2) == 0 ? 0 : bytes.From1To(100);
  std::vector<uint64_t> out(Tiles(p) * tokens);
  for (uint32_t t = 0; t < tokens; ++t) {
    const uint32_t end = view > tokens - 1 - t ? view - (tokens - 1 - t) : 0;  // Of the keys that it sees.
    const uint32_t begin = window != 0 && end > window ? end - window : 0;
    for (uint32_t i = begin; i < end; ++i) out[i / kTileTokens * tokens + t] |= uint64_t{1} << i % kTileTokens;
  }
  return out;
}

/// AMX beside the reference, for plain numbers: scores err by 2^-15 of the sum of their products' magnitudes, so a
/// probability by that factor; probabilities and values again by 2^-15.
std::string FarFromReference(const AttendProblem& p, const AttendCase& c, const std::vector<float>& got,
                             const std::vector<float>& expected) {
  double value_max = 0;
  for (float v : p.values) value_max = std::max(value_max, std::abs(double{v}));
  for (uint32_t row = 0; row < c.tokens * c.group; ++row) {
    double mass = 0;
    for (uint32_t slot = 0; slot < p.blocks * kPageTokens; ++slot) {
      double sum = 0;
      for (uint32_t i = 0; i < p.key_dim; ++i) {
        sum += std::abs(double{c.queries[row * p.key_dim + i]} * p.keys[slot * p.key_dim + i]);
      }
      mass = std::max(mass, sum);
    }
    const double bound = (2 * mass + 8) * 0x1p-15 * value_max;
    for (uint32_t i = 0; i < p.value_dim; ++i) {
      const size_t at = row * p.value_dim + i;
      if (std::abs(double{got[at]} - expected[at]) <= bound) continue;
      return Cat("element ", at, " is ", got[at], ", expected ", expected[at], " within ", bound);
    }
  }
  return "";
}

/// The sums of all tiles, gone through in two parts that are merged.
AttendState MergedAt(const KernelTable& kernels, AttendProblem& p, const AttendCase& c, uint32_t split) {
  AttendState first(c.tokens * c.group, p, c.softcap, c.group), last = first;
  AttendTiles(kernels, p, c.queries, 0, split, c.visible, first);
  AttendTiles(kernels, p, c.queries, split, Tiles(p), c.visible, last);
  kernels.attend_merge(first.shape, last.Sums(), first.Sums());
  return first;
}

/// One token of the case beside itself among the others.
std::string DifferenceOfOneToken(const KernelTable& kernels, AttendProblem& p, const AttendCase& c,
                                 const std::vector<float>& together, uint32_t token) {
  const size_t query = size_t{c.group} * p.key_dim, out = size_t{c.group} * p.value_dim;
  AttendCase one = c;
  one.tokens = 1;
  one.queries.assign(c.queries.begin() + static_cast<std::ptrdiff_t>(token * query),
                     c.queries.begin() + static_cast<std::ptrdiff_t>((token + 1) * query));
  one.visible.clear();
  for (uint32_t tile = 0; tile < Tiles(p); ++tile) one.visible.push_back(c.visible[tile * c.tokens + token]);
  AttendState alone(c.group, p, c.softcap, c.group);
  AttendAll(kernels, p, one.queries, one.visible, alone);
  return Difference(alone.Finish(kernels), std::span(together).subspan(token * out, out));
}

std::string AttendDifference(Case& bytes) {
  const KvType type = bytes.Below(2) == 0 ? KvType::kF16 : KvType::kQ8;
  const uint32_t key_dim = bytes.From1To(160), value_dim = bytes.From1To(160), blocks = bytes.From1To(10);
  const Numbers pages = bytes.Kind(), queries = bytes.Kind();
  AttendProblem p(type, key_dim, value_dim, blocks, bytes.prng(), pages);
  AttendCase c{.tokens = bytes.From1To(40), .group = bytes.From1To(4)};
  constexpr float kSoftcaps[] = {0, 3, 30};
  c.softcap = kSoftcaps[bytes.Below(3)];
  c.queries = bytes.Floats(size_t{c.tokens} * c.group * key_dim, queries);
  c.visible = bytes.Below(2) == 0 ? RandomVisible(p, c.tokens, bytes.prng()) : ChunkVisible(p, c.tokens, bytes);
  c.plain = pages == Numbers::kPlain && queries == Numbers::kPlain && c.softcap == 0;
  c.finite = pages != Numbers::kBroken;
  if (pages == Numbers::kBroken) {
    bytes.Edit({p.key_pages.data(), p.key_pages.size()}, 4);
    bytes.Edit({p.value_pages.data(), p.value_pages.size()}, 4);
  }
  const uint32_t token = bytes.Below(c.tokens), split = bytes.Below(Tiles(p) + 1);
  std::vector<AttendState> before;
  for (Isa isa : SupportedIsas()) before.push_back(MergedAt(KernelsFor(isa), p, c, split));
  SpoilHiddenSlots(p, c.visible, c.tokens, bytes.prng());
  const std::vector<float> expected = before.front().Finish(KernelsFor(Isa::kReference));
  for (size_t i = 0; i < SupportedIsas().size(); ++i) {
    const Isa isa = SupportedIsas()[i];
    const KernelTable& kernels = KernelsFor(isa);
    const bool is_reference = BitsOf(isa) == Isa::kReference;
    const std::string where =
        Cat("attend ", IsaName(isa), " ", KvTypeName(type), " key ", key_dim, " value ", value_dim, " blocks ", blocks,
            " tokens ", c.tokens, " of ", c.group, " softcap ", c.softcap, ": ");
    AttendState after = MergedAt(kernels, p, c, split);
    std::string difference = Difference(after.All(), before[i].All());
    if (!difference.empty()) return where + "hidden slots show: " + difference;
    if (is_reference) difference = Difference(after.All(), before.front().All());
    if (!difference.empty()) return where + difference;
    const std::vector<float> y = after.Finish(kernels);
    if (is_reference) difference = Difference(y, expected);
    if (!is_reference && c.plain) difference = FarFromReference(p, c, y, expected);
    if (!difference.empty()) return where + difference;
    AttendState all(c.tokens * c.group, p, c.softcap, c.group);
    AttendAll(kernels, p, c.queries, c.visible, all);
    // On tiles a NaN among values reaches all rows of a call (decision 0007).
    if (is_reference || c.finite) difference = DifferenceOfOneToken(kernels, p, c, all.Finish(kernels), token);
    if (!difference.empty()) return Cat(where, "token ", token, " alone: ", difference);
  }
  return "";
}

// --- rows ---

std::string RowDifference(Case& bytes) {
  const uint32_t which = bytes.Below(7), n = bytes.From1To(300);
  const std::vector<float> a = bytes.Floats(n, bytes.Kind()), b = bytes.Floats(n, bytes.Kind());
  const float factor = bytes.Floats(1, Numbers::kWild)[0], cap = 0.5f + static_cast<float>(bytes.Byte());
  const auto run = [&](const KernelTable& k, const float* x, float* y) {
    switch (which) {
      case 0:
        return k.silu_mul(x, b.data(), n, y);
      case 1:
        return k.gelu_tanh_mul(x, b.data(), n, y);
      case 2:
        return k.add(x, b.data(), n, y);
      case 3:
        return k.scale(x, factor, n, y);
      case 4:
        return k.softcap(x, cap, n, y);
      case 5:
        return k.rms_norm(x, b.data(), n, 1e-5f, y);
      default:
        return k.rms_norm(x, nullptr, n, 1e-6f, y);
    }
  };
  std::vector<float> expected(n + 1, kUntouched);
  run(KernelsFor(Isa::kReference), a.data(), expected.data());
  for (Isa isa : FastIsas()) {
    std::vector<float> y(n + 1, kUntouched), in_place = a;
    run(KernelsFor(isa), a.data(), y.data());
    run(KernelsFor(isa), in_place.data(), in_place.data());
    in_place.push_back(kUntouched);
    for (const std::vector<float>& got : {y, in_place}) {
      const std::string difference = Difference(got, expected);
      if (!difference.empty()) return Cat("row kernel ", which, " ", IsaName(isa), " n ", n, ": ", difference);
    }
  }
  return "";
}

std::string RopeDifference(Case& bytes) {
  const uint32_t heads = bytes.From1To(4), head_dim = 1 + bytes.From1To(256);
  const uint32_t pairs = bytes.From1To(head_dim / 2);
  const auto layout = bytes.Below(2) == 0 ? RopePairs::kHalves : RopePairs::kAdjacent;
  const std::vector<float> x = bytes.Floats(size_t{heads} * head_dim, bytes.Kind());
  const std::vector<float> cos = bytes.Floats(pairs, bytes.Kind()), sin = bytes.Floats(pairs, bytes.Kind());
  std::vector<float> expected = x;
  KernelsFor(Isa::kReference).rope(expected.data(), heads, head_dim, 2 * pairs, cos.data(), sin.data(), layout);
  for (Isa isa : FastIsas()) {
    std::vector<float> got = x;
    KernelsFor(isa).rope(got.data(), heads, head_dim, 2 * pairs, cos.data(), sin.data(), layout);
    const std::string difference = Difference(got, expected);
    if (!difference.empty()) return Cat("rope ", IsaName(isa), " head ", head_dim, " pairs ", pairs, ": ", difference);
  }
  return "";
}

/// A page as numbers that Difference can compare: NaN of any kind are equal.
std::vector<float> PageNumbers(const Bytes& page, KvType type, uint32_t scale_floats) {
  std::vector<float> out;
  if (type == KvType::kF16) {
    const auto* halves = reinterpret_cast<const uint16_t*>(page.data());
    for (size_t i = 0; i < page.size() / 2; ++i) out.push_back(F16ToF32(halves[i]));
    return out;
  }
  const auto* scales = reinterpret_cast<const float*>(page.data());
  out.assign(scales, scales + scale_floats);
  for (size_t i = scale_floats * sizeof(float); i < page.size(); ++i) {
    out.push_back(static_cast<float>(std::to_integer<int>(page.data()[i])));
  }
  return out;
}

std::string StoreDifference(Case& bytes) {
  const KvType type = bytes.Below(2) == 0 ? KvType::kF16 : KvType::kQ8;
  const bool is_key = bytes.Below(2) == 0;
  const uint32_t width = bytes.From1To(kHeadDimMax), slot = bytes.Below(kPageTokens);
  const std::vector<float> row = bytes.Floats(width, bytes.Kind());
  const uint32_t scales = kPageTokens * (is_key ? (width + kKvKeyBlock - 1) / kKvKeyBlock : 1);
  const auto store = [&](Isa isa) {
    Bytes page(is_key ? KvKeyPageBytes(type, width) : KvValuePageBytes(type, width));
    (is_key ? KernelsFor(isa).store_key : KernelsFor(isa).store_value)(type, row.data(), width, slot, page.data());
    return PageNumbers(page, type, scales);
  };
  const std::vector<float> expected = store(Isa::kReference);
  for (Isa isa : FastIsas()) {
    const std::string difference = Difference(store(isa), expected);
    if (!difference.empty()) {
      return Cat("store of a ", is_key ? "key " : "value ", KvTypeName(type), " ", IsaName(isa), " width ", width,
                 " slot ", slot, ": ", difference);
    }
  }
  return "";
}

}  // namespace

std::string DifferenceOfCase(std::span<const uint8_t> bytes) {
  Case c(bytes);
  switch (c.Below(8)) {
    case 0:
      return RowDifference(c);
    case 1:
      return RopeDifference(c);
    case 2:
      return StoreDifference(c);
    case 3:
    case 4:
      return AttendDifference(c);
    default:
      return MatMulDifference(c);
  }
}

}  // namespace kvist::kernels::testing
