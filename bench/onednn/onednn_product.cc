#include "onednn_product.h"

#include <cstdio>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

// Of the OpenMP runtime that Debian's oneDNN is linked with.
extern "C" void omp_set_num_threads(int threads);

namespace kvist::bench {
namespace {

using dnnl::memory;

memory::data_type DataType(OneDnnType type) {
  switch (type) {
    case OneDnnType::kF32:
      return memory::data_type::f32;
    case OneDnnType::kBF16:
      return memory::data_type::bf16;
    case OneDnnType::kInt8:
      return memory::data_type::s8;
  }
  std::abort();
}

/// @return the value of `body`; an exception of the library ends the program.
template <class Body>
auto OrDie(Body&& body) {
  try {
    return body();
  } catch (const dnnl::error& error) {
    std::fprintf(stderr, "oneDNN: %s\n", error.what());
    std::abort();
  }
}

}  // namespace

struct OneDnnProduct::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul::primitive_desc description;
  dnnl::matmul product;
  memory x, weights, y;
};

std::string OneDnnIsa() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    default:
      return "other";
  }
}

OneDnnProduct::OneDnnProduct(OneDnnType type, uint32_t rows, uint32_t cols, uint32_t tokens,
                             std::span<const std::byte> weights) {
  omp_set_num_threads(1);
  state_ = OrDie([&] {
    auto state = std::make_unique<State>();
    const memory::data_type numbers = DataType(type);
    const memory::desc x({tokens, cols}, numbers, memory::format_tag::ab);
    const memory::desc y({tokens, rows}, memory::data_type::f32, memory::format_tag::ab);
    const memory::desc any({cols, rows}, numbers, memory::format_tag::any);
    state->description = dnnl::matmul::primitive_desc(dnnl::matmul::desc(x, any, y), state->engine);
    state->product = dnnl::matmul(state->description);
    // [rows][cols] is the transpose of what the library calls the weights.
    memory plain({{cols, rows}, numbers, memory::format_tag::ba}, state->engine,
                 const_cast<std::byte*>(weights.data()));
    state->weights = memory(state->description.weights_desc(), state->engine);
    dnnl::reorder(plain, state->weights).execute(state->stream, plain, state->weights);
    state->stream.wait();
    state->x = memory(x, state->engine, nullptr);
    state->y = memory(y, state->engine, nullptr);
    return state;
  });
}

OneDnnProduct::~OneDnnProduct() = default;

void OneDnnProduct::Run(const std::byte* x, float* y) {
  OrDie([&] {
    state_->x.set_data_handle(const_cast<std::byte*>(x));
    state_->y.set_data_handle(y);
    state_->product.execute(
        state_->stream, {{DNNL_ARG_SRC, state_->x}, {DNNL_ARG_WEIGHTS, state_->weights}, {DNNL_ARG_DST, state_->y}});
    state_->stream.wait();
    return true;
  });
}

size_t OneDnnProduct::weight_bytes() const {
  return state_->description.weights_desc().get_size();
}

std::string OneDnnProduct::implementation() const {
  return state_->description.impl_info_str();
}

}  // namespace kvist::bench
