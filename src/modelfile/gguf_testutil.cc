#include "modelfile/gguf_testutil.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "modelfile/gguf_writer.h"
#include "modelfile/inspect.h"

namespace kvist {
namespace {

using Code = absl::StatusCode;
constexpr auto kInvalid = Code::kInvalidArgument;
constexpr uint64_t kHuge = uint64_t{1} << 60;

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Pseudo-data for `count` bytes.
std::vector<std::byte> Filler(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  return bytes;
}

std::string Joined(absl::StatusOr<std::vector<std::vector<std::byte>>> images) {
  KVIST_CHECK(images.ok());
  std::string out;
  for (const std::vector<std::byte>& image : *images) {
    out.resize((out.size() + 31) / 32 * 32, '\0');
    out += AsText(image);
  }
  return out;
}

void SetLlamaShape(GgufWriter& writer) {
  writer.SetString("general.architecture", "llama");
  writer.SetString("general.name", "tiny");
  writer.SetU32("llama.context_length", 128);
  writer.SetU32("llama.block_count", 2);
  writer.SetU32("llama.embedding_length", 64);
  writer.SetU32("llama.feed_forward_length", 96);
  writer.SetU32("llama.attention.head_count", 4);
  writer.SetF32("llama.rope.freq_base", 10000);
  writer.SetString("tokenizer.ggml.model", "llama");
  writer.SetStrings("tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "<s>", "</s>", "a"});
  writer.SetF32s("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -1});
  writer.SetI32s("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 3, 1});
}

/// Adds one tensor of each of `types`, of the smallest shape that it allows, times two rows.
void AddTensors(GgufWriter& writer, std::initializer_list<DType> types) {
  static const std::vector<std::byte> filler = Filler(4096);
  for (DType dtype : types) {
    const DTypeInfo& info = InfoOf(dtype);
    const std::array<uint64_t, 2> dims{info.block_elements, 2};
    writer.AddTensor(Cat("t.", info.name), dtype, dims, std::span(filler).first(2 * info.block_bytes));
  }
}

std::string OkLlama(const GgufWriterOptions& options) {
  GgufWriter writer(options);
  SetLlamaShape(writer);
  writer.SetU32s("llama.attention.head_count_kv", std::vector<uint32_t>{2, 1});
  AddTensors(writer, {DType::kF32, DType::kQ8_0, DType::kQ4_0});
  return Joined(writer.WriteImages());
}

std::string OkAllDTypes() {
  GgufWriter writer;
  AddTensors(writer, {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                      DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ2_K, DType::kQ3_K,
                      DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4});
  return Joined(writer.WriteImages());
}

/// One value of each type, and one array of each.
std::string OkAllValueTypes() {
  RawGguf raw;
  raw.Header(3, 0, 25);
  raw.Key("u8", GgufType::kU8).Put<uint8_t>(255).Key("i8", GgufType::kI8).Put<int8_t>(-128);
  raw.Key("u16", GgufType::kU16).Put<uint16_t>(65535).Key("i16", GgufType::kI16).Put<int16_t>(-32768);
  raw.Key("u32", GgufType::kU32).Put<uint32_t>(~0u).Key("i32", GgufType::kI32).Put<int32_t>(-1);
  raw.Key("u64", GgufType::kU64).Put<uint64_t>(~uint64_t{0}).Key("i64", GgufType::kI64).Put<int64_t>(INT64_MIN);
  raw.Key("f32", GgufType::kF32).Put<float>(1.5f).Key("f64", GgufType::kF64).Put<double>(1e300);
  raw.Key("bool", GgufType::kBool).Put<uint8_t>(1).Text("string", "h\xc3\xa9 \xff\x1b[31m");
  raw.Array("a.u8", GgufType::kU8, 2).Put<uint8_t>(1).Put<uint8_t>(255);
  raw.Array("a.i8", GgufType::kI8, 1).Put<int8_t>(-1);
  raw.Array("a.u16", GgufType::kU16, 1).Put<uint16_t>(65535);
  raw.Array("a.i16", GgufType::kI16, 1).Put<int16_t>(-2);
  raw.Array("a.u32", GgufType::kU32, 1).Put<uint32_t>(~0u);
  raw.Array("a.i32", GgufType::kI32, 1).Put<int32_t>(-3);
  raw.Array("a.u64", GgufType::kU64, 2).Put<uint64_t>(1).Put<uint64_t>(~uint64_t{0});
  raw.Array("a.u64.small", GgufType::kU64, 1).Put<uint64_t>(uint64_t{1} << 62);
  raw.Array("a.i64", GgufType::kI64, 1).Put<int64_t>(INT64_MIN);
  raw.Array("a.f32", GgufType::kF32, 2).Put<float>(-0.5f).Put<uint32_t>(0x7fc00000);  // NaN
  raw.Array("a.f64", GgufType::kF64, 2).Put<double>(0.25).Put<double>(-1e300);
  raw.Array("a.bool", GgufType::kBool, 2).Put<uint8_t>(0).Put<uint8_t>(1);
  raw.Array("a.string", GgufType::kString, 3).String("").String("two").String(std::string(300, 'x'));
  return raw.bytes();
}

/// A file with `tensor` fields and `data_bytes` of data, for lies about one tensor.
std::string OneTensor(std::span<const uint64_t> dims, uint32_t ggml_type, uint64_t offset, size_t data_bytes) {
  RawGguf raw;
  raw.Header(3, 1, 0).Tensor("t", dims, ggml_type, offset).PadTo(32).Bytes(std::string(data_bytes, 'd'));
  return raw.bytes();
}
std::string OneTensor(std::initializer_list<uint64_t> dims, uint32_t ggml_type, uint64_t offset, size_t data_bytes) {
  return OneTensor(std::span(dims.begin(), dims.size()), ggml_type, offset, data_bytes);
}

/// Two f32 tensors of 32 bytes, named and placed as told.
std::string TwoTensors(std::string_view name, uint64_t offset) {
  const std::array<uint64_t, 1> dims{8};
  RawGguf raw;
  raw.Header(3, 2, 0).Tensor("a", dims, 0, 32).Tensor(name, dims, 0, offset).PadTo(32).Bytes(std::string(128, 'd'));
  return raw.bytes();
}

std::string Alignment(GgufType type, std::string_view payload) {
  RawGguf raw;
  raw.Header(3, 0, 1).Key("general.alignment", type).Bytes(payload);
  return raw.bytes();
}

std::string AlignmentU32(uint32_t alignment) {
  return Alignment(GgufType::kU32, {reinterpret_cast<const char*>(&alignment), sizeof(alignment)});
}

/// One part of a split model with one tensor.
std::string SplitPart(uint16_t no, uint16_t count, int32_t tensors_count, std::string_view tensor) {
  const std::array<uint64_t, 1> dims{8};
  RawGguf raw;
  raw.Header(3, 1, 3).Key("split.no", GgufType::kU16).Put(no).Key("split.count", GgufType::kU16).Put(count);
  raw.Key("split.tensors.count", GgufType::kI32).Put(tensors_count);
  raw.Tensor(tensor, dims, 0, 0).PadTo(32).Bytes(std::string(32, 'd'));
  return raw.bytes();
}

void AddOkCases(std::vector<GgufCase>& cases) {
  cases.push_back({.name = "ok_empty", .bytes = RawGguf().Header(3, 0, 0).bytes()});
  cases.push_back({.name = "ok_llama_v3", .bytes = OkLlama({})});
  cases.push_back({.name = "ok_llama_v2", .bytes = OkLlama({.version = 2})});
  cases.push_back({.name = "ok_alignment_64", .bytes = OkLlama({.alignment = 64})});
  cases.push_back({.name = "ok_split_three_parts", .bytes = OkLlama({.part_bytes_max = 32})});
  cases.push_back({.name = "ok_split_alignment_128", .bytes = OkLlama({.alignment = 128, .part_bytes_max = 1})});
  cases.push_back({.name = "ok_all_tensor_types", .bytes = OkAllDTypes()});
  cases.push_back({.name = "ok_all_value_types", .bytes = OkAllValueTypes()});
  cases.push_back({.name = "ok_long_key_and_tensor_name",
                   .bytes = RawGguf()
                                .Header(3, 1, 1)
                                .U32(std::string(1000, 'k'), 7)
                                .Tensor(std::string(1000, 'n'), std::array<uint64_t, 4>{1, 1, 1, 1}, 0, 0)
                                .PadTo(32)
                                .Bytes("data")
                                .bytes()});
  cases.push_back({.name = "ok_tensors_out_of_order_with_gap", .bytes = TwoTensors("b", 0)});
  GgufWriter mamba;
  mamba.SetString("general.architecture", "mamba");
  mamba.SetU32("mamba.block_count", 4);
  mamba.SetU32("mamba.attention.head_count", 0);
  cases.push_back({.name = "ok_no_attention_heads", .bytes = Joined(mamba.WriteImages())});
  GgufWriter absurd;
  absurd.SetString("general.architecture", "x");
  for (const char* key :
       {"x.block_count", "x.attention.head_count", "x.attention.key_length", "x.attention.value_length"}) {
    absurd.SetU32(key, ~0u);
  }
  cases.push_back({.name = "ok_absurd_shape", .bytes = Joined(absurd.WriteImages())});
}

void AddBadHeaders(std::vector<GgufCase>& cases) {
  cases.push_back({"bad_empty_file", "", kInvalid, "offset 0: not a GGUF file"});
  cases.push_back({"bad_magic", "GGML\3" + std::string(40, '\0'), kInvalid, "offset 0: not a GGUF file"});
  cases.push_back({"bad_version_1", RawGguf().Header(1, 0, 0).bytes(), Code::kUnimplemented, "GGUF version 1"});
  cases.push_back({"bad_version_4", RawGguf().Header(4, 0, 0).bytes(), Code::kUnimplemented, "GGUF version 4"});
  cases.push_back({"bad_big_endian", RawGguf().Header(3u << 24, 0, 0).bytes(), Code::kUnimplemented, "big-endian"});
  cases.push_back(
      {"bad_header_cut", RawGguf().Header(3, 0, 0).bytes().substr(0, 20), kInvalid, "offset 16: file ends"});
  cases.push_back({"bad_metadata_count_huge", RawGguf().Header(3, 0, kHuge).Bytes(std::string(64, 0)).bytes(), kInvalid,
                   "offset 16: 1152921504606846976 metadata entries"});
  cases.push_back({"bad_tensors_count_huge", RawGguf().Header(3, kHuge, 0).Bytes(std::string(64, 0)).bytes(), kInvalid,
                   "offset 8: 1152921504606846976 tensors"});
  cases.push_back({"bad_metadata_count_beyond_file", RawGguf().Header(3, 0, 9).Bytes(std::string(64, 0)).bytes(),
                   kInvalid, "9 metadata entries do not fit in the 64 bytes"});
  cases.push_back({"bad_tensors_count_beyond_file", RawGguf().Header(3, 9, 0).Bytes(std::string(64, 0)).bytes(),
                   kInvalid, "9 tensors do not fit in the 64 bytes"});
}

void AddBadMetadata(std::vector<GgufCase>& cases) {
  const auto one = [] { return std::move(RawGguf().Header(3, 0, 1)); };
  cases.push_back({"bad_key_length_overflow", one().Put<uint64_t>(~uint64_t{0}).Bytes(std::string(32, 'k')).bytes(),
                   kInvalid, "key of metadata entry 0: offset 24: string of 18446744073709551615 bytes"});
  cases.push_back({"bad_key_empty", one().U32("", 1).bytes(), kInvalid, "key of metadata entry 0 is empty"});
  cases.push_back({"bad_key_not_ascii", one().U32("k\xc3\xa9y\n", 1).bytes(), kInvalid, "not printable ASCII"});
  cases.push_back({"bad_key_duplicate", RawGguf().Header(3, 0, 2).U32("a.b", 1).U32("a.b", 2).bytes(), kInvalid,
                   "offset 43: duplicate key \"a.b\""});
  cases.push_back({"bad_value_type_13", one().Key("k", GgufType{13}).Put<uint64_t>(0).bytes(), kInvalid,
                   "key \"k\": offset 33: unknown value type 13"});
  cases.push_back({"bad_bool_is_2", one().Key("k", GgufType::kBool).Put<uint8_t>(2).Put<uint8_t>(0).bytes(), kInvalid,
                   "key \"k\": offset 37: boolean is 2"});
  cases.push_back({"bad_string_length_huge", one().Key("k", GgufType::kString).Put(kHuge).bytes(), kInvalid,
                   "key \"k\": offset 37: string of 1152921504606846976 bytes"});
  cases.push_back({"bad_value_cut", one().Key("k", GgufType::kU64).Put<uint32_t>(1).bytes(), kInvalid,
                   "key \"k\": offset 37: file ends inside a value of 8 bytes"});
  cases.push_back({"bad_array_count_huge", one().Array("k", GgufType::kU8, kHuge).Bytes("xxxx").bytes(), kInvalid,
                   "key \"k\": offset 41: array of 1152921504606846976 u8"});
  // Times the size of an element this wraps to a small number.
  cases.push_back({"bad_array_count_wraps",
                   one().Array("k", GgufType::kU64, (kHuge << 1) + 1).Bytes(std::string(16, 0)).bytes(), kInvalid,
                   "array of 2305843009213693953 u64"});
  cases.push_back({"bad_array_strings_count", one().Array("k", GgufType::kString, 3).Bytes(std::string(16, 0)).bytes(),
                   kInvalid, "array of 3 string elements does not fit"});
  cases.push_back({"bad_array_string_length", one().Array("k", GgufType::kString, 2).String("a").Put(kHuge).bytes(),
                   kInvalid, "key \"k\": element 1: offset 58: string of"});
  cases.push_back(
      {"bad_array_bool_is_9", one().Array("k", GgufType::kBool, 1).Put<uint8_t>(9).bytes(), kInvalid, "boolean is 9"});
  cases.push_back({"bad_array_element_type", one().Array("k", GgufType{99}, 1).Put<uint64_t>(9).bytes(), kInvalid,
                   "unknown value type 99"});
  cases.push_back({"bad_array_of_arrays",
                   one().Array("k", GgufType::kArray, 1).Put<uint32_t>(4).Put<uint64_t>(0).bytes(),
                   Code::kUnimplemented, "key \"k\": offset 37: arrays of arrays"});
  cases.push_back({"bad_alignment_0", AlignmentU32(0), kInvalid, "general.alignment"});
  cases.push_back({"bad_alignment_4", AlignmentU32(4), kInvalid, "general.alignment"});
  cases.push_back({"bad_alignment_24", AlignmentU32(24), kInvalid, "not a power of two"});
  cases.push_back(
      {"bad_alignment_negative", Alignment(GgufType::kI64, std::string(8, '\xff')), kInvalid, "general.alignment"});
  cases.push_back(
      {"bad_alignment_2_63", Alignment(GgufType::kU64, std::string(7, '\0') + '\x80'), kInvalid, "general.alignment"});
  cases.push_back({"bad_alignment_text", Alignment(GgufType::kString, std::string(8, '\0')), kInvalid,
                   "is string, not an integer"});
}

void AddBadTensors(std::vector<GgufCase>& cases) {
  cases.push_back({"bad_tensor_type_unknown", OneTensor({32}, 1000, 0, 128), kInvalid,
                   "tensor \"t\": offset 45: unknown tensor type 1000"});
  cases.push_back({"bad_tensor_type_iq2_xs", OneTensor({256}, 17, 0, 128), Code::kUnimplemented,
                   "tensor type iq2_xs (17) is not supported"});
  cases.push_back(
      {"bad_tensor_type_removed", OneTensor({32}, 4, 0, 128), Code::kUnimplemented, "tensor type q4_2 (4)"});
  cases.push_back({"bad_dims_0", OneTensor({}, 0, 0, 64), kInvalid, "tensor \"t\": offset 33: 0 dimensions"});
  cases.push_back({"bad_dims_5", OneTensor({1, 1, 1, 1, 1}, 0, 0, 64), kInvalid, "5 dimensions"});
  RawGguf many;
  many.Header(3, 1, 0).String("t").Put<uint32_t>(~0u).Bytes(std::string(64, '\1'));
  cases.push_back({"bad_dims_2_32", many.bytes(), kInvalid, "4294967295 dimensions"});
  cases.push_back({"bad_dim_zero", OneTensor({8, 0}, 0, 0, 64), kInvalid, "has a dimension of 0"});
  cases.push_back({"bad_dims_overflow", OneTensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0, 64), kInvalid,
                   "dimensions overflow"});
  // 2^62 elements of four bytes wrap to 0 bytes.
  cases.push_back(
      {"bad_bytes_overflow", OneTensor({uint64_t{1} << 62}, 0, 0, 64), kInvalid, "size in bytes overflows"});
  cases.push_back({"bad_dims_lie", OneTensor({8, 1000}, 0, 0, 64), kInvalid,
                   "32000 bytes at data offset 0 lie outside the 64 bytes"});
  cases.push_back({"bad_row_cuts_block", OneTensor({48, 2}, 8, 0, 256), kInvalid,
                   "row of 48 elements is not a multiple of q8_0's block of 32"});
  cases.push_back(
      {"bad_row_cuts_k_block", OneTensor({128, 2}, 12, 0, 256), kInvalid, "multiple of q4_k's block of 256"});
  cases.push_back({"bad_offset_unaligned", OneTensor({8}, 0, 16, 128), kInvalid,
                   "data offset 16 is not a multiple of the alignment 32"});
  cases.push_back({"bad_offset_outside", OneTensor({8}, 0, 1024, 128), kInvalid, "lie outside"});
  cases.push_back({"bad_offset_overflow", OneTensor({8}, 0, ~uint64_t{31}, 128), kInvalid, "lie outside"});
  cases.push_back(
      {"bad_data_cut", OneTensor({8}, 0, 0, 31), kInvalid, "32 bytes at data offset 0 lie outside the 31 bytes"});
  cases.push_back({"bad_data_missing", OneTensor({8}, 0, 0, 0), kInvalid, "lie outside the 0 bytes"});
  cases.push_back({"bad_tensors_overlap", TwoTensors("b", 32), kInvalid, "its bytes overlap those of"});
  cases.push_back({"bad_tensor_duplicate", TwoTensors("a", 64), kInvalid, "duplicate tensor \"a\""});
  cases.push_back({"bad_tensor_name_empty", TwoTensors("", 64), kInvalid, "name of tensor 1 is empty"});
  RawGguf name;
  name.Header(3, 1, 0).Put(kHuge).Bytes(std::string(64, 'n'));
  cases.push_back({"bad_tensor_name_length", name.bytes(), kInvalid, "name of tensor 0: offset 24: string of"});
  RawGguf far;  // The padding before the data reaches beyond the end of the file.
  far.Header(3, 1, 1)
      .U32("general.alignment", 1u << 31)
      .Tensor("t", std::array<uint64_t, 1>{8}, 0, 0)
      .Bytes(std::string(64, 'd'));
  cases.push_back({"bad_alignment_beyond_file", far.bytes(), kInvalid, "lie outside the 0 bytes"});
}

void AddBadSplits(std::vector<GgufCase>& cases) {
  const std::string first = SplitPart(0, 2, 2, "a");
  cases.push_back({"ok_split_by_hand", first + SplitPart(1, 2, 2, "b")});
  cases.push_back({"bad_split_part_missing", first, kInvalid, "says 2 parts, but the model was opened as 1"});
  cases.push_back({"bad_split_part_twice", first + first, kInvalid, "key \"split.no\": is 0, but this is part 1"});
  cases.push_back(
      {"bad_split_order", SplitPart(1, 2, 2, "b") + first, kInvalid, "key \"split.no\": is 1, but this is part 0"});
  cases.push_back({"bad_split_count_differs", first + SplitPart(1, 3, 2, "b"), kInvalid,
                   "says 3 parts, but the model was opened as 2"});
  cases.push_back({"bad_split_tensor_in_two_parts", first + SplitPart(1, 2, 2, "a"), kInvalid,
                   "tensor \"a\" is in more than one part"});
  cases.push_back({"bad_split_tensors_count", first.substr(0, 0) + SplitPart(0, 2, 3, "a") + SplitPart(1, 2, 3, "b"),
                   kInvalid, "says 3 tensors, but the parts hold 2"});
  cases.push_back({"bad_split_count_negative",
                   RawGguf().Header(3, 0, 1).Key("split.count", GgufType::kI32).Put<int32_t>(-1).bytes(), kInvalid,
                   "key \"split.count\": is not a non-negative integer"});
  cases.push_back({"bad_split_count_text", RawGguf().Header(3, 0, 1).Text("split.count", "2").bytes(), kInvalid,
                   "key \"split.count\": is not a non-negative integer"});
}

/// Sums bytes so that a sanitizer sees each one read.
uint64_t Sum(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (std::byte byte : bytes) sum += static_cast<uint64_t>(byte);
  return sum;
}

uint64_t TouchValue(const GgufValue& value) {
  return std::visit(
      []<class T>(const T& held) -> uint64_t {
        if constexpr (std::is_same_v<T, std::string_view>) {
          return Sum(AsBytes(held));
        } else if constexpr (std::is_same_v<T, GgufValue::Strings>) {
          uint64_t sum = 0;
          for (std::string_view text : held) sum += Sum(AsBytes(text));
          return sum;
        } else {
          return 0;
        }
      },
      value.value);
}

/// Exactly one typed accessor may succeed on a key, or none (an integer out of range, say).
void TryAccessors(const GgufFile& file, std::string_view key) {
  const int succeeded = int{file.GetString(key).ok()} + file.GetU32(key).ok() + file.GetF32(key).ok() +
                        file.GetBool(key).ok() + file.GetInts(key).ok() + file.GetFloats(key).ok() +
                        file.GetStrings(key).ok();
  KVIST_CHECK(succeeded <= 1);
  KVIST_CHECK(file.Has(key) && !absl::IsNotFound(file.GetU32(key).status()));
  // A fallback changes nothing for a key that is there.
  KVIST_CHECK(file.GetStringOr(key, "").status() == file.GetString(key).status());
  KVIST_CHECK(file.GetU32Or(key, 0).status() == file.GetU32(key).status());
  KVIST_CHECK(file.GetF32Or(key, 0).status() == file.GetF32(key).status());
  KVIST_CHECK(file.GetBoolOr(key, false).status() == file.GetBool(key).status());
}

}  // namespace

RawGguf& RawGguf::Header(uint32_t version, uint64_t tensors_count, uint64_t metadata_count) {
  return Bytes("GGUF").Put(version).Put(tensors_count).Put(metadata_count);
}

RawGguf& RawGguf::Bytes(std::string_view bytes) {
  bytes_ += bytes;
  return *this;
}

RawGguf& RawGguf::String(std::string_view text) {
  return Put<uint64_t>(text.size()).Bytes(text);
}

RawGguf& RawGguf::Key(std::string_view key, GgufType type) {
  return String(key).Put(static_cast<uint32_t>(type));
}

RawGguf& RawGguf::Array(std::string_view key, GgufType type, uint64_t count) {
  return Key(key, GgufType::kArray).Put(static_cast<uint32_t>(type)).Put(count);
}

RawGguf& RawGguf::U32(std::string_view key, uint32_t value) {
  return Key(key, GgufType::kU32).Put(value);
}

RawGguf& RawGguf::Text(std::string_view key, std::string_view value) {
  return Key(key, GgufType::kString).String(value);
}

RawGguf& RawGguf::Tensor(std::string_view name, std::span<const uint64_t> dims, uint32_t ggml_type, uint64_t offset) {
  String(name).Put(static_cast<uint32_t>(dims.size()));
  for (uint64_t dim : dims) Put(dim);
  return Put(ggml_type).Put(offset);
}

RawGguf& RawGguf::PadTo(size_t alignment) {
  bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment, '\0');
  return *this;
}

std::vector<GgufCase> GgufCases() {
  std::vector<GgufCase> cases;
  AddOkCases(cases);
  AddBadHeaders(cases);
  AddBadMetadata(cases);
  AddBadTensors(cases);
  AddBadSplits(cases);
  return cases;
}

absl::StatusOr<std::unique_ptr<GgufFile>> ParseCase(std::string_view bytes, std::string_view label) {
  std::vector<GgufImage> parts;
  size_t begin = 0;
  for (size_t at = 32; at + 8 <= bytes.size(); at += 32) {
    const std::string_view start = bytes.substr(at, 8);
    if (start != std::string_view("GGUF\3\0\0\0", 8) && start != std::string_view("GGUF\2\0\0\0", 8)) continue;
    parts.push_back({AsBytes(bytes.substr(begin, at - begin)), Cat(label, "[", parts.size(), "]")});
    begin = at;
  }
  if (parts.empty()) return GgufFile::Parse(AsBytes(bytes), label);
  parts.push_back({AsBytes(bytes.substr(begin)), Cat(label, "[", parts.size(), "]")});
  return GgufFile::ParseParts(parts);
}

void TouchEverything(const GgufFile& file) {
  uint64_t sum = 0;
  for (const auto& [key, value] : file.metadata()) {
    KVIST_CHECK(file.FindValue(key) == &value);
    sum += TouchValue(value);
    TryAccessors(file, key);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    KVIST_CHECK(file.FindTensor(tensor.name) == &tensor);
    KVIST_CHECK(!tensor.dims.empty() && tensor.dims.size() <= 4 && tensor.Elements() > 0);
    KVIST_CHECK(tensor.bytes.size() == RowBytes(tensor.dtype, tensor.dims[0]) * (tensor.Elements() / tensor.dims[0]));
    sum += Sum(tensor.bytes);
  }
  KVIST_CHECK(!InspectText(file, {.tensors = true}).empty());
  // Parsing back proves that the JSON is well-formed, UTF-8 included.
  const std::string json = boost::json::serialize(InspectJson(file, {.tensors = true}));
  boost::json::error_code error;
  boost::json::parse(json, error);
  KVIST_CHECK(!error);
  // Keeps the sums from being optimised away.
  static volatile uint64_t sink;
  sink = sum;
  (void)sink;
}

}  // namespace kvist
