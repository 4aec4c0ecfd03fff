#include "modelfile/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "base/status.h"

namespace kvist {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie in the file");

constexpr uint64_t kKeyBytesMax = 65535;
constexpr uint32_t kDimsMax = 4;
// Far above any model (a large one has some 10^4 tensors and 10^6 array elements). They bound memory: a sparse file
// costs its author nothing, so its size alone is no bound.
constexpr uint64_t kEntriesMax = uint64_t{1} << 20;
constexpr uint64_t kArrayElementsMax = uint64_t{1} << 26;
// Least bytes an entry can take: key of one character, type, one byte; name of one character, one dimension.
constexpr uint64_t kMetadataEntryBytesMin = 8 + 1 + 4 + 1;
constexpr uint64_t kTensorEntryBytesMin = 8 + 1 + 4 + 8 + 4 + 8;

absl::Status Malformed(uint64_t offset, std::string_view what) {
  return absl::InvalidArgumentError(Cat("offset ", offset, ": ", what));
}

/// Reads forward through the image. Every read checks what is left first.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> image) : image_(image) {}

  uint64_t at() const { return at_; }

  /// Takes `count` array elements from what one file may hold; false when that is used up.
  bool TakeArrayElements(uint64_t count) {
    if (count > array_elements_left_) return false;
    array_elements_left_ -= count;
    return true;
  }
  uint64_t left() const { return image_.size() - at_; }

  template <class T>
  absl::StatusOr<T> Read() {
    static_assert(std::is_arithmetic_v<T>);
    if (left() < sizeof(T)) return Truncated(sizeof(T));
    T value;
    std::memcpy(&value, image_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  absl::StatusOr<std::string_view> ReadString() {
    KVIST_ASSIGN_OR_RETURN(uint64_t length, Read<uint64_t>());
    if (length > left()) {
      return Malformed(at_ - 8, Cat("string of ", length, " bytes, but the file ends after ", left()));
    }
    std::string_view text(reinterpret_cast<const char*>(image_.data() + at_), length);
    at_ += length;
    return text;
  }

 private:
  absl::Status Truncated(uint64_t needed) const {
    return Malformed(at_, Cat("file ends inside a value of ", needed, " bytes"));
  }

  std::span<const std::byte> image_;
  uint64_t at_ = 0;
  uint64_t array_elements_left_ = kArrayElementsMax;
};

/// f64 to f32 without undefined behaviour: too large becomes infinite.
float ToFloat(double value) {
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) {
    return std::copysign(std::numeric_limits<float>::infinity(), value < 0 ? -1.0f : 1.0f);
  }
  return static_cast<float>(value);
}

/// Bytes of one stored element; of a string, its length field.
uint64_t ElementBytesMin(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    default:
      return 8;
  }
}

absl::StatusOr<GgufType> ReadType(Cursor& in) {
  const uint64_t offset = in.at();
  KVIST_ASSIGN_OR_RETURN(uint32_t number, in.Read<uint32_t>());
  if (number > static_cast<uint32_t>(GgufType::kF64)) return Malformed(offset, Cat("unknown value type ", number));
  return static_cast<GgufType>(number);
}

absl::StatusOr<bool> ReadBool(Cursor& in) {
  const uint64_t offset = in.at();
  KVIST_ASSIGN_OR_RETURN(uint8_t byte, in.Read<uint8_t>());
  if (byte > 1) return Malformed(offset, Cat("boolean is ", byte, ", not 0 or 1"));
  return byte != 0;
}

/// Appends `count` elements of stored type Stored. `count` was checked against the file.
template <class Stored, class Kept>
absl::StatusOr<std::vector<Kept>> ReadNumbers(Cursor& in, uint64_t count) {
  std::vector<Kept> out;
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    KVIST_ASSIGN_OR_RETURN(Stored value, in.Read<Stored>());
    if constexpr (std::is_same_v<Stored, double>) {
      out.push_back(ToFloat(value));
    } else {
      out.push_back(static_cast<Kept>(value));
    }
  }
  return out;
}

absl::StatusOr<GgufValue> ReadArray(Cursor& in) {
  GgufValue out;
  const uint64_t offset = in.at();
  KVIST_ASSIGN_OR_RETURN(out.type, ReadType(in));
  if (out.type == GgufType::kArray) {
    return absl::UnimplementedError(Cat("offset ", offset, ": arrays of arrays are not supported"));
  }
  KVIST_ASSIGN_OR_RETURN(uint64_t count, in.Read<uint64_t>());
  if (count > in.left() / ElementBytesMin(out.type)) {
    return Malformed(offset + 4, Cat("array of ", count, " ", GgufTypeName(out.type), " elements does not fit in the ",
                                     in.left(), " bytes that are left"));
  }
  if (!in.TakeArrayElements(count)) {
    return Malformed(offset + 4, Cat("arrays hold more than ", kArrayElementsMax, " elements in all"));
  }
  switch (out.type) {
#define KVIST_READ_INTS(type, stored)                                             \
  case GgufType::type: {                                                          \
    KVIST_ASSIGN_OR_RETURN(out.value, (ReadNumbers<stored, int64_t>(in, count))); \
    break;                                                                        \
  }
    KVIST_READ_INTS(kU8, uint8_t)
    KVIST_READ_INTS(kI8, int8_t)
    KVIST_READ_INTS(kU16, uint16_t)
    KVIST_READ_INTS(kI16, int16_t)
    KVIST_READ_INTS(kU32, uint32_t)
    KVIST_READ_INTS(kI32, int32_t)
    KVIST_READ_INTS(kI64, int64_t)
#undef KVIST_READ_INTS
    case GgufType::kU64: {
      KVIST_ASSIGN_OR_RETURN(auto wide, (ReadNumbers<uint64_t, uint64_t>(in, count)));
      if (std::all_of(wide.begin(), wide.end(), [](uint64_t v) { return v <= std::numeric_limits<int64_t>::max(); })) {
        out.value = GgufValue::Ints(wide.begin(), wide.end());
      } else {
        out.value = std::move(wide);
      }
      break;
    }
    case GgufType::kF32: {
      KVIST_ASSIGN_OR_RETURN(out.value, (ReadNumbers<float, float>(in, count)));
      break;
    }
    case GgufType::kF64: {
      KVIST_ASSIGN_OR_RETURN(out.value, (ReadNumbers<double, float>(in, count)));
      break;
    }
    case GgufType::kBool: {
      GgufValue::Ints bools;
      bools.reserve(count);
      for (uint64_t i = 0; i < count; ++i) {
        KVIST_ASSIGN_OR_RETURN(bool value, ReadBool(in));
        bools.push_back(value);
      }
      out.value = std::move(bools);
      break;
    }
    default: {
      GgufValue::Strings strings;
      strings.reserve(count);
      for (uint64_t i = 0; i < count; ++i) {
        absl::StatusOr<std::string_view> text = in.ReadString();
        if (!text.ok()) return Annotate(text.status(), Cat("element ", i));
        strings.push_back(*text);
      }
      out.value = std::move(strings);
    }
  }
  return out;
}

absl::StatusOr<GgufValue> ReadValue(Cursor& in) {
  GgufValue out;
  KVIST_ASSIGN_OR_RETURN(out.type, ReadType(in));
  switch (out.type) {
#define KVIST_READ_SCALAR(type, stored, kept)            \
  case GgufType::type: {                                 \
    KVIST_ASSIGN_OR_RETURN(stored v, in.Read<stored>()); \
    out.value = static_cast<kept>(v);                    \
    return out;                                          \
  }
    KVIST_READ_SCALAR(kU8, uint8_t, uint64_t)
    KVIST_READ_SCALAR(kI8, int8_t, int64_t)
    KVIST_READ_SCALAR(kU16, uint16_t, uint64_t)
    KVIST_READ_SCALAR(kI16, int16_t, int64_t)
    KVIST_READ_SCALAR(kU32, uint32_t, uint64_t)
    KVIST_READ_SCALAR(kI32, int32_t, int64_t)
    KVIST_READ_SCALAR(kF32, float, double)
    KVIST_READ_SCALAR(kU64, uint64_t, uint64_t)
    KVIST_READ_SCALAR(kI64, int64_t, int64_t)
    KVIST_READ_SCALAR(kF64, double, double)
#undef KVIST_READ_SCALAR
    case GgufType::kBool: {
      KVIST_ASSIGN_OR_RETURN(out.value, ReadBool(in));
      return out;
    }
    case GgufType::kString: {
      KVIST_ASSIGN_OR_RETURN(out.value, in.ReadString());
      return out;
    }
    case GgufType::kArray:
      return ReadArray(in);
  }
  return Malformed(in.at(), "unknown value type");
}

absl::Status ReadHeader(Cursor& in, uint32_t& version, uint64_t& tensors_count, uint64_t& metadata_count) {
  constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
  absl::StatusOr<uint32_t> magic = in.Read<uint32_t>();
  if (!magic.ok() || *magic != kMagic) return Malformed(0, "not a GGUF file: does not start with \"GGUF\"");
  KVIST_ASSIGN_OR_RETURN(version, in.Read<uint32_t>());
  if (version != 0 && (version & 0xffff) == 0) {
    return absl::UnimplementedError("offset 4: big-endian GGUF is not supported; convert the file to little endian");
  }
  if (version != 2 && version != 3) {
    return absl::UnimplementedError(Cat("offset 4: GGUF version ", version, " is not supported, only 2 and 3"));
  }
  KVIST_ASSIGN_OR_RETURN(tensors_count, in.Read<uint64_t>());
  KVIST_ASSIGN_OR_RETURN(metadata_count, in.Read<uint64_t>());
  if (metadata_count > kEntriesMax) {
    return Malformed(16, Cat(metadata_count, " metadata entries; at most ", kEntriesMax, " are allowed"));
  }
  if (tensors_count > kEntriesMax) {
    return Malformed(8, Cat(tensors_count, " tensors; at most ", kEntriesMax, " are allowed"));
  }
  if (metadata_count > in.left() / kMetadataEntryBytesMin) {
    return Malformed(16,
                     Cat(metadata_count, " metadata entries do not fit in the ", in.left(), " bytes that are left"));
  }
  if (tensors_count > in.left() / kTensorEntryBytesMin) {
    return Malformed(8, Cat(tensors_count, " tensors do not fit in the ", in.left(), " bytes that are left"));
  }
  return absl::OkStatus();
}

absl::Status ReadMetadata(Cursor& in, uint64_t count, GgufFile::Metadata& out) {
  absl::flat_hash_set<std::string_view> seen;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t offset = in.at();
    absl::StatusOr<std::string_view> key = in.ReadString();
    if (!key.ok()) return Annotate(key.status(), Cat("key of metadata entry ", i));
    if (key->empty()) return Malformed(offset, Cat("key of metadata entry ", i, " is empty"));
    if (key->size() > kKeyBytesMax) {
      return Malformed(offset, Cat("key of ", key->size(), " bytes; at most ", kKeyBytesMax, " are allowed"));
    }
    if (std::any_of(key->begin(), key->end(), [](char c) { return c < 0x20 || c > 0x7e; })) {
      return Malformed(offset, Cat("key ", QuoteForMessage(*key), " is not printable ASCII"));
    }
    if (!seen.insert(*key).second) return Malformed(offset, Cat("duplicate key ", QuoteForMessage(*key)));
    absl::StatusOr<GgufValue> value = ReadValue(in);
    if (!value.ok()) return Annotate(value.status(), Cat("key ", QuoteForMessage(*key)));
    out.emplace_back(*key, *std::move(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> AlignmentOf(const GgufPart& part) {
  const GgufValue* value = part.Find("general.alignment");
  if (value == nullptr) return kGgufAlignment;
  uint64_t alignment = 0;
  if (const auto* number = std::get_if<uint64_t>(&value->value)) {
    alignment = *number;
  } else if (const auto* number_signed = std::get_if<int64_t>(&value->value)) {
    alignment = *number_signed < 0 ? 0 : static_cast<uint64_t>(*number_signed);
  } else {
    return absl::InvalidArgumentError(Cat("key \"general.alignment\": is ",
                                          value->IsArray() ? "an array" : GgufTypeName(value->type),
                                          ", not an integer"));
  }
  // The format asks for a multiple of 8; every known reader asks for a power of two as well.
  if (alignment < 8 || alignment > (uint64_t{1} << 31) || !std::has_single_bit(alignment)) {
    return absl::InvalidArgumentError("key \"general.alignment\": is not a power of two from 8 to 2^31");
  }
  return alignment;
}

absl::StatusOr<DType> ReadDType(Cursor& in) {
  const uint64_t offset = in.at();
  KVIST_ASSIGN_OR_RETURN(uint32_t number, in.Read<uint32_t>());
  if (std::optional<DTypeInfo> info = FindDType(number)) return info->dtype;
  std::string_view name = UnsupportedDTypeName(number);
  if (!name.empty()) {
    return absl::UnimplementedError(Cat("offset ", offset, ": tensor type ", name, " (", number, ") is not supported"));
  }
  return Malformed(offset, Cat("unknown tensor type ", number));
}

/// A tensor before the start of the data section is known.
struct TensorEntry {
  GgufTensor tensor;
  uint64_t entry_offset;  ///< Of this entry in the file, for messages.
  uint64_t data_offset;   ///< From the start of the data section.
  uint64_t data_bytes;
};

absl::Status ReadTensorFields(Cursor& in, uint64_t alignment, TensorEntry& entry) {
  uint64_t offset = in.at();
  KVIST_ASSIGN_OR_RETURN(uint32_t dims_count, in.Read<uint32_t>());
  if (dims_count == 0 || dims_count > kDimsMax) {
    return Malformed(offset, Cat(dims_count, " dimensions; 1 to ", kDimsMax, " are allowed"));
  }
  offset = in.at();
  for (uint32_t d = 0; d < dims_count; ++d) {
    KVIST_ASSIGN_OR_RETURN(uint64_t dim, in.Read<uint64_t>());
    entry.tensor.dims.push_back(dim);
  }
  KVIST_ASSIGN_OR_RETURN(entry.tensor.dtype, ReadDType(in));
  absl::StatusOr<uint64_t> bytes = GgufTensorBytes(entry.tensor.dtype, entry.tensor.dims);
  if (!bytes.ok()) return Annotate(bytes.status(), Cat("offset ", offset));
  entry.data_bytes = *bytes;
  offset = in.at();
  KVIST_ASSIGN_OR_RETURN(entry.data_offset, in.Read<uint64_t>());
  if (entry.data_offset % alignment != 0) {
    return Malformed(offset, Cat("data offset ", entry.data_offset, " is not a multiple of the alignment ", alignment));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorEntry>> ReadTensorEntries(Cursor& in, uint64_t count, uint64_t alignment) {
  std::vector<TensorEntry> entries;
  absl::flat_hash_set<std::string_view> seen;
  for (uint64_t i = 0; i < count; ++i) {
    TensorEntry entry{.tensor = {}, .entry_offset = in.at(), .data_offset = 0, .data_bytes = 0};
    absl::StatusOr<std::string_view> name = in.ReadString();
    if (!name.ok()) return Annotate(name.status(), Cat("name of tensor ", i));
    if (name->empty()) return Malformed(entry.entry_offset, Cat("name of tensor ", i, " is empty"));
    if (!seen.insert(*name).second) {
      return Malformed(entry.entry_offset, Cat("duplicate tensor ", QuoteForMessage(*name)));
    }
    entry.tensor.name = *name;
    absl::Status status = ReadTensorFields(in, alignment, entry);
    if (!status.ok()) return Annotate(status, Cat("tensor ", QuoteForMessage(*name)));
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::Status CheckDisjoint(std::span<const TensorEntry> entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return entries[a].data_offset < entries[b].data_offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorEntry& before = entries[order[i - 1]];
    const TensorEntry& after = entries[order[i]];
    if (before.data_offset + before.data_bytes > after.data_offset) {
      return Malformed(after.entry_offset, Cat("tensor ", QuoteForMessage(after.tensor.name),
                                               ": its bytes overlap those of ", QuoteForMessage(before.tensor.name)));
    }
  }
  return absl::OkStatus();
}

/// Gives every tensor its bytes. The data section starts at `header_end`, rounded up to the alignment.
absl::Status PlaceTensors(std::span<const std::byte> image, uint64_t header_end, std::vector<TensorEntry>& entries,
                          GgufPart& part) {
  if (entries.empty()) return absl::OkStatus();
  // No overflow: a file's size is far below 2^63 and the alignment at most 2^31.
  const uint64_t data_start = (header_end + part.alignment - 1) / part.alignment * part.alignment;
  const uint64_t data_bytes = data_start < image.size() ? image.size() - data_start : 0;
  for (TensorEntry& entry : entries) {
    if (entry.data_bytes > data_bytes || entry.data_offset > data_bytes - entry.data_bytes) {
      return Malformed(entry.entry_offset, Cat("tensor ", QuoteForMessage(entry.tensor.name), ": ", entry.data_bytes,
                                               " bytes at data offset ", entry.data_offset, " lie outside the ",
                                               data_bytes, " bytes of data in the file"));
    }
    entry.tensor.bytes = image.subspan(data_start + entry.data_offset, entry.data_bytes);
  }
  KVIST_RETURN_IF_ERROR(CheckDisjoint(entries));
  part.tensors.reserve(entries.size());
  for (TensorEntry& entry : entries) part.tensors.push_back(std::move(entry.tensor));
  return absl::OkStatus();
}

}  // namespace

const GgufValue* GgufPart::Find(std::string_view key) const {
  for (const auto& [name, value] : metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

absl::StatusOr<GgufPart> ParseGgufPart(std::span<const std::byte> image) {
  Cursor in(image);
  GgufPart part;
  uint64_t tensors_count = 0;
  uint64_t metadata_count = 0;
  KVIST_RETURN_IF_ERROR(ReadHeader(in, part.version, tensors_count, metadata_count));
  KVIST_RETURN_IF_ERROR(ReadMetadata(in, metadata_count, part.metadata));
  KVIST_ASSIGN_OR_RETURN(part.alignment, AlignmentOf(part));
  KVIST_ASSIGN_OR_RETURN(std::vector<TensorEntry> entries, ReadTensorEntries(in, tensors_count, part.alignment));
  KVIST_RETURN_IF_ERROR(PlaceTensors(image, in.at(), entries, part));
  return part;
}

absl::StatusOr<uint64_t> GgufTensorBytes(DType dtype, std::span<const uint64_t> dims) {
  const DTypeInfo& info = InfoOf(dtype);
  if (dims.empty() || dims.size() > kDimsMax) {
    return absl::InvalidArgumentError(Cat("has ", dims.size(), " dimensions; 1 to ", kDimsMax, " are allowed"));
  }
  uint64_t elements = 1;
  for (uint64_t dim : dims) {
    if (dim == 0) return absl::InvalidArgumentError("has a dimension of 0");
    if (__builtin_mul_overflow(elements, dim, &elements))
      return absl::InvalidArgumentError("dimensions overflow 64 bits");
  }
  if (dims[0] % info.block_elements != 0) {
    return absl::InvalidArgumentError(
        Cat("row of ", dims[0], " elements is not a multiple of ", info.name, "'s block of ", info.block_elements));
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(elements / info.block_elements, uint64_t{info.block_bytes}, &bytes)) {
    return absl::InvalidArgumentError("size in bytes overflows 64 bits");
  }
  return bytes;
}

std::string QuoteForMessage(std::string_view text) {
  constexpr size_t kShown = 96;
  std::string quoted = Cat("\"", absl::CHexEscape(ToAbsl(text.substr(0, kShown))), "\"");
  if (text.size() > kShown) absl::StrAppend(&quoted, "... (", text.size(), " bytes)");
  return quoted;
}

}  // namespace kvist
