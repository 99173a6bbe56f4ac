// What lies between tensor operations, compiled: masks made or looked up, RoPE in eleven passes or in one, and a model's
// layers that call each other or do not. Built for any x86-64, as a plain release build is. Shapes: T tokens, H heads, D
// head size, E width, N = T·H.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

using Floats = std::vector<float>;

template <typename Value> void keep(Value* value) { asm volatile("" : : "r"(value) : "memory"); }

#define CALLED __attribute__((noinline))

// --- masks -----------------------------------------------------------------------------------------------------------

// A tensor is counted by reference, and so is what it stores; shape and strides are allocated on their own.
struct Tensor {
  std::shared_ptr<Floats> storage;
  std::vector<size_t> shape, stride;
};
using Mask = std::shared_ptr<Tensor>;

static Mask make_mask(size_t length) {
  auto values = std::make_shared<Floats>(length * length, 0.0f);
  for (size_t row = 0; row < length; row++)
    for (size_t column = row + 1; column < length; column++)
      (*values)[row * length + column] = -std::numeric_limits<float>::infinity();
  return std::make_shared<Tensor>(Tensor{values, {length, length}, {length, 1}});
}

// SipHash-1-3 of one 64-bit number: what a hash map of Rust's standard library hashes with.
struct SipHash {
  uint64_t first = 0x0706050403020100, second = 0x0f0e0d0c0b0a0908;

  size_t operator()(uint64_t number) const {
    uint64_t a = first ^ 0x736f6d6570736575, b = second ^ 0x646f72616e646f6d;
    uint64_t c = first ^ 0x6c7967656e657261, d = second ^ 0x7465646279746573;
    auto turn = [](uint64_t x, int by) { return (x << by) | (x >> (64 - by)); };
    auto round = [&] {
      a += b; b = turn(b, 13) ^ a; a = turn(a, 32);
      c += d; d = turn(d, 16) ^ c;
      a += d; d = turn(d, 21) ^ a;
      c += b; b = turn(b, 17) ^ c; c = turn(c, 32);
    };
    for (uint64_t block : {number, uint64_t{8} << 56}) {
      d ^= block;
      round();
      a ^= block;
    }
    c ^= 0xff;
    round(); round(); round();
    return a ^ b ^ c ^ d;
  }
};

static double hidden_keys(const Tensor& mask) {
  double count = 0;
  for (float value : *mask.storage) count += std::isinf(value);
  return count;
}

extern "C" double masks_made(size_t length, size_t times) {
  Mask mask;
  for (size_t i = 0; i < times; i++) {
    keep(&length);
    mask = make_mask(length);
    keep(mask.get());
  }
  return hidden_keys(*mask) * times;
}

// As the worker did: asked whether it is there, made if not, then taken.
extern "C" double masks_found(size_t length, size_t times) {
  std::unordered_map<size_t, Mask, SipHash> masks;
  const Tensor* mask = nullptr;
  for (size_t i = 0; i < times; i++) {
    keep(&length);
    if (!masks.count(length)) masks.emplace(length, make_mask(length));
    mask = masks.find(length)->second.get();
    keep(mask);
  }
  return hidden_keys(*mask) * times;
}

// --- RoPE: x [T, H, D] → out, neighbours turned; cos and sin [T, D/2] -------------------------------------------------

// Memory that is not filled with zeros first, as Candle takes for what an operation writes all of.
static std::unique_ptr<float[]> fresh(size_t count) { return std::make_unique_for_overwrite<float[]>(count); }

// TEAM-003's: columns gathered, tables repeated for each head, six passes of arithmetic, columns put back.
CALLED static void gathered(const float* x, const float* cos, const float* sin, float* out, size_t tokens, size_t heads,
                            size_t size) {
  size_t rows = tokens * heads, half = size / 2, count = rows * half;
  auto even = fresh(count), odd = fresh(count), cosines = fresh(count), sines = fresh(count);
  for (size_t column = 0; column < half; column++)
    for (size_t row = 0; row < rows; row++) {
      even[row * half + column] = x[row * size + 2 * column];
      odd[row * half + column] = x[row * size + 2 * column + 1];
    }
  for (size_t row = 0; row < rows; row++) {
    std::memcpy(&cosines[row * half], &cos[row / heads * half], half * sizeof(float));
    std::memcpy(&sines[row * half], &sin[row / heads * half], half * sizeof(float));
  }
  auto pass = [count](const auto& a, const auto& b, auto combine) {
    auto result = fresh(count);
    for (size_t i = 0; i < count; i++) result[i] = combine(a[i], b[i]);
    return result;
  };
  std::multiplies<float> times;
  auto first = pass(pass(even, cosines, times), pass(odd, sines, times), std::minus<float>());
  auto second = pass(pass(even, sines, times), pass(odd, cosines, times), std::plus<float>());
  for (size_t column = 0; column < half; column++)
    for (size_t row = 0; row < rows; row++) {
      out[row * size + 2 * column] = first[row * half + column];
      out[row * size + 2 * column + 1] = second[row * half + column];
    }
}

static void swapped(const float* x, float* out, size_t outer, size_t inner, size_t size) {
  for (size_t i = 0; i < outer; i++)
    for (size_t j = 0; j < inner; j++) std::memcpy(&out[(j * outer + i) * size], &x[(i * inner + j) * size], size * sizeof(float));
}

// In [H, T, D], over memory that is filled with zeros first.
static void turn(const float* x, const float* cos, const float* sin, float* out, size_t tokens, size_t heads, size_t size) {
  size_t half = size / 2;
  std::memset(out, 0, tokens * heads * size * sizeof(float));
  for (size_t row = 0; row < heads * tokens; row++) {
    const float *from = &x[row * size], *c = &cos[row % tokens * half], *s = &sin[row % tokens * half];
    float* to = &out[row * size];
    for (size_t i = 0; i < half; i++) {
      to[2 * i] = from[2 * i] * c[i] - from[2 * i + 1] * s[i];
      to[2 * i + 1] = from[2 * i] * s[i] + from[2 * i + 1] * c[i];
    }
  }
}

// The library's: one pass, between a copy there and a copy back, of one token none.
CALLED static void one_pass(const float* x, const float* cos, const float* sin, float* out, size_t tokens, size_t heads,
                            size_t size) {
  if (tokens == 1) return turn(x, cos, sin, out, tokens, heads, size);
  auto there = fresh(tokens * heads * size), turned = fresh(tokens * heads * size);
  swapped(x, there.get(), tokens, heads, size);
  turn(there.get(), cos, sin, turned.get(), tokens, heads, size);
  swapped(turned.get(), out, heads, tokens, size);
}

// So many times, that what a call from Python costs is lost in it.
#define REPEATED(name, once)                                                                                          \
  extern "C" void name(const float* x, const float* cos, const float* sin, float* out, size_t tokens, size_t heads,    \
                       size_t size, size_t times) {                                                                    \
    for (size_t i = 0; i < times; i++) once(x, cos, sin, out, tokens, heads, size), keep(out);                         \
  }
REPEATED(rope_gathered, gathered)
REPEATED(rope_one_pass, one_pass)

// --- layers: decode of one token after 64, in the shape of the 15M model, with what the worker had of a layer -----------

constexpr size_t E = 288, H = 6, D = 48, L = 6, S = 65;

// What a function is given is nobody else's (`__restrict`), as Rust's compiler knows of all that may be written.
#define INLINED static inline __attribute__((always_inline))

struct Weights {
  Floats q, k, v, keys, values;

  explicit Weights(unsigned seed) : q(E * E), k(E * E), v(E * E), keys(S * E), values(S * E) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    for (Floats* part : {&q, &k, &v})
      for (float& value : *part) value = normal(random) / std::sqrt(float(E));
    for (Floats* part : {&keys, &values})
      for (float& value : *part) value = normal(random);
  }
};

static Floats angles(bool sine) {
  Floats table(D / 2);
  for (size_t i = 0; i < D / 2; i++) {
    double angle = (S - 1) * std::pow(10000.0, -2.0 * double(i) / double(D));
    table[i] = float(sine ? std::sin(angle) : std::cos(angle));
  }
  return table;
}

static std::vector<Weights>& model() {
  static std::vector<Weights> layers = [] {
    std::vector<Weights> made;
    for (unsigned seed = 0; seed < L; seed++) made.emplace_back(seed);
    return made;
  }();
  return layers;
}

INLINED void project(const float* __restrict x, const float* __restrict weight, float* __restrict y) {
  std::memset(y, 0, E * sizeof(float));
  for (size_t i = 0; i < E; i++)
    for (size_t j = 0; j < E; j++) y[j] += x[i] * weight[i * E + j];
}

INLINED void rotate(float* __restrict x, const float* __restrict cos, const float* __restrict sin) {
  for (size_t head = 0; head < H; head++)
    for (size_t i = 0; i < D / 2; i++) {
      float *even = &x[head * D + 2 * i], *odd = even + 1, first = *even;
      *even = first * cos[i] - *odd * sin[i];
      *odd = first * sin[i] + *odd * cos[i];
    }
}

INLINED void append(Weights& layer, const float* k, const float* v) {
  std::memcpy(&layer.keys[(S - 1) * E], k, E * sizeof(float));
  std::memcpy(&layer.values[(S - 1) * E], v, E * sizeof(float));
}

INLINED void score(const float* __restrict q, const float* __restrict keys, float* __restrict scores) {  // [H, S]
  for (size_t head = 0; head < H; head++)
    for (size_t s = 0; s < S; s++) {
      float sum = 0;
      for (size_t i = 0; i < D; i++) sum += q[head * D + i] * keys[s * E + head * D + i];
      scores[head * S + s] = sum / std::sqrt(float(D));
    }
}

INLINED void soften(float* scores) {
  for (size_t head = 0; head < H; head++) {
    float *row = &scores[head * S], most = row[0], sum = 0;
    for (size_t s = 1; s < S; s++) most = std::max(most, row[s]);
    for (size_t s = 0; s < S; s++) sum += row[s] = std::exp(row[s] - most);
    for (size_t s = 0; s < S; s++) row[s] /= sum;
  }
}

INLINED void weigh(const float* __restrict shares, const float* __restrict values, float* __restrict y) {
  std::memset(y, 0, E * sizeof(float));
  for (size_t head = 0; head < H; head++)
    for (size_t s = 0; s < S; s++)
      for (size_t i = 0; i < D; i++) y[head * D + i] += shares[head * S + s] * values[s * E + head * D + i];
}

// Every part an object behind an interface, every step a call that no compiler can leave out.
struct Projection {
  const Floats& weight;
  explicit Projection(const Floats& of) : weight(of) {}
  CALLED virtual void forward(const float* x, float* y) { project(x, weight.data(), y); }
  virtual ~Projection() = default;
};
struct Rotary {
  Floats cos = angles(false), sin = angles(true);
  CALLED virtual void forward(float* x) { rotate(x, cos.data(), sin.data()); }
  virtual ~Rotary() = default;
};
struct Cache {
  Weights& layer;
  explicit Cache(Weights& of) : layer(of) {}
  CALLED virtual void add(const float* k, const float* v) { append(layer, k, v); }
  virtual ~Cache() = default;
};
struct Attention {
  Weights& layer;
  explicit Attention(Weights& of) : layer(of) {}
  CALLED virtual void scores(const float* q, float* out) { score(q, layer.keys.data(), out); }
  CALLED virtual void softmax(float* x) { soften(x); }
  CALLED virtual void output(const float* shares, float* y) { weigh(shares, layer.values.data(), y); }
  virtual ~Attention() = default;
};
struct Layer {
  Projection q, k, v;
  Rotary rotary;
  Cache cache;
  Attention attention;

  explicit Layer(Weights& of) : q(of.q), k(of.k), v(of.v), cache(of), attention(of) {}
  virtual ~Layer() = default;
  CALLED virtual void forward(float* x) {
    float a[E], b[E], c[E], y[E], shares[H * S];
    Projection *first = &q, *second = &k, *third = &v;
    Rotary* rope = &rotary;
    Cache* kept = &cache;
    Attention* attend = &attention;
    keep(&first), keep(&second), keep(&third), keep(&rope), keep(&kept), keep(&attend);
    first->forward(x, a), second->forward(x, b), third->forward(x, c);
    rope->forward(a), rope->forward(b);
    kept->add(b, c);
    attend->scores(a, shares), attend->softmax(shares), attend->output(shares, y);
    for (size_t i = 0; i < E; i++) x[i] += y[i];
  }
};

extern "C" void layers_called(float* x, size_t times) {  // x [E], replaced
  static std::vector<std::unique_ptr<Layer>> layers = [] {
    std::vector<std::unique_ptr<Layer>> made;
    for (Weights& weights : model()) made.push_back(std::make_unique<Layer>(weights));
    return made;
  }();
  for (size_t i = 0; i < times; i++)
    for (auto& layer : layers) {
      Layer* one = layer.get();
      keep(&one);
      one->forward(x);
    }
}

extern "C" void layers_in_one(float* x, size_t times) {
  static Floats cos = angles(false), sin = angles(true);
  auto& layers = model();
  float a[E], b[E], c[E], y[E], shares[H * S];
  for (size_t i = 0; i < times; i++)
    for (Weights& layer : layers) {
      project(x, layer.q.data(), a), project(x, layer.k.data(), b), project(x, layer.v.data(), c);
      rotate(a, cos.data(), sin.data()), rotate(b, cos.data(), sin.data());
      append(layer, b, c);
      score(a, layer.keys.data(), shares), soften(shares), weigh(shares, layer.values.data(), y);
      for (size_t j = 0; j < E; j++) x[j] += y[j];
    }
}
