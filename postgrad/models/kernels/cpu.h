/* What the C kernels share: types, threads, vectors, rows of norms and gates, and the small matrix product of attention. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t count;
#define OMP(words) _Pragma(#words)
#define TEAM OMP(omp parallel num_threads(threads) if(threads > 1))
#define SHARED OMP(omp for schedule(dynamic))
#define ROWS OMP(omp parallel for schedule(static) num_threads(threads) if(threads > 1))
#define SIMD OMP(omp simd)
#define MAX(x) OMP(omp simd reduction(max:x))

#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX__)
#define WIDTH 8
#else
#define WIDTH 4
#endif
enum { BLOCK = 16 };  /* rows of scores at a time */
typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))

/* e^x to about 1e-7: x = n log 2 + r, a polynomial in r (Cephes), and n into the exponent. 0 below -87.3, e^88 above 88. */
INLINE float exponential(float x) {
    float z = x < -87.3f ? -87.3f : x;
    z = z > 88.0f ? 88.0f : z;
    float n = rintf(z * 1.44269504089f);
    float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, z));  /* in this order */
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union { int32_t bits; float value; } two = { ((int32_t)n + 127) << 23 };
    return x < -87.3f ? 0.0f : p * two.value;
}

/* cap tanh(x / cap); tanh by an odd polynomial near 0 (Cephes), which keeps small numbers exact. */
INLINE float capped(float x, float cap) {
    float z = x / cap, a = fabsf(z), square = z * z;
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    float far = 1.0f - 2.0f / (exponential(2.0f * a) + 1.0f);
    return cap * (a < 0.625f ? p * square * z + z : copysignf(far, z));
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

/* y = x / rms(x) * weight for one row, in place if y is x; returns 1 / rms. */
INLINE float norm_row(count D, const float *x, const float *restrict weight, float eps, float *y) {
    float squares = 0;
    for (count d = 0; d < D; d++) squares += x[d] * x[d];
    float inverse = 1.0f / sqrtf(squares / D + eps);
    SIMD for (count d = 0; d < D; d++) y[d] = x[d] * inverse * weight[d];
    return inverse;
}

/* The first 2 half numbers of a head of Dh. */
INLINE void rotate_row(count Dh, count half, float sign, const float *restrict x, const float *restrict cos,
                       const float *restrict sin, float *restrict y) {
    for (count d = 2 * half; d < Dh; d++) y[d] = x[d];
    SIMD for (count d = 0; d < half; d++) {
        y[d] = x[d] * cos[d] - x[d + half] * sin[d] * sign;
        y[d + half] = x[d + half] * cos[d] + x[d] * sin[d] * sign;
    }
}

/* As gate_row with the GELU's approximation by tanh: a / (1 + e^(-2 sqrt(2 / pi) (a + 0.044715 a^3))). */
INLINE void gelu_row(count F, const float *restrict a, const float *restrict b, float *restrict y) {
    SIMD for (count f = 0; f < F; f++) y[f] = a[f] * sigmoid(1.5957691216f * (a[f] + 0.044715f * a[f] * a[f] * a[f])) * b[f];
}

INLINE void gate_row(count F, const float *restrict a, const float *restrict b, float *restrict y) {
    SIMD for (count f = 0; f < F; f++) y[f] = a[f] * sigmoid(a[f]) * b[f];
}

/* A tile of `multiply`: rows and vecs are constants where it is called, so that the sums stay in registers. */
INLINE void tile(int rows, int vecs, int keep, count depth, const float *a, count ai, count ak, const float *b, count bk,
                 float *c, count ci) {
    vec sum[4][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vecs; j++) sum[i][j] = keep ? *(const vec *)(c + i * ci + j * WIDTH) : (vec){0};
    for (count k = 0; k < depth; k++)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < vecs; j++) sum[i][j] += a[i * ai + k * ak] * *(const vec *)(b + k * bk + j * WIDTH);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vecs; j++) *(vec *)(c + i * ci + j * WIDTH) = sum[i][j];
}

INLINE void strip(int rows, int keep, count n, count depth, const float *a, count ai, count ak, const float *b, count bk,
                  float *c, count ci) {
    count j = 0;
    for (; j + 2 * WIDTH <= n; j += 2 * WIDTH) tile(rows, 2, keep, depth, a, ai, ak, b + j, bk, c + j, ci);
    for (; j + WIDTH <= n; j += WIDTH) tile(rows, 1, keep, depth, a, ai, ak, b + j, bk, c + j, ci);
    for (; j < n; j++)
        for (int i = 0; i < rows; i++) {
            float sum = keep ? c[i * ci + j] : 0;
            for (count k = 0; k < depth; k++) sum = fmaf(a[i * ai + k * ak], b[k * bk + j], sum);
            c[i * ci + j] = sum;
        }
}

/* c [rows, n] = a b, or c += a b to keep what is there: a [rows, depth] has steps ai, ak (so it may be transposed), b [depth, n]
   has rows bk apart, c has rows ci apart. Each element is one chain of sums in the order of depth, in whatever tile it falls. */
static void multiply(int keep, count rows, count n, count depth, const float *a, count ai, count ak, const float *b, count bk,
                     float *c, count ci) {
    count i = 0;
    for (; i + 4 <= rows; i += 4) strip(4, keep, n, depth, a + i * ai, ai, ak, b, bk, c + i * ci, ci);
    for (; i < rows; i++) strip(1, keep, n, depth, a + i * ai, ai, ak, b, bk, c + i * ci, ci);
}

/* Zeros for a thread's own use. They begin where a cache line does, so that a sum is split over vectors in the same way whichever
   thread takes it. */
static float *zeros(count n) {
    size_t bytes = (n * sizeof(float) + 63) & ~(size_t)63;
    return memset(aligned_alloc(64, bytes), 0, bytes);
}

/* n rounded up to whole vectors. */
INLINE count whole(count n) { return (n + WIDTH - 1) & -WIDTH; }

/* Scores to e^(score - largest) in place; returns their sum and the largest. */
INLINE float soften(count n, float *restrict s, float *largest) {
    float top = -INFINITY, sum = 0;
    MAX(top) for (count j = 0; j < n; j++) top = s[j] > top ? s[j] : top;
    for (count j = 0; j < n; j++) sum += s[j] = exponential(s[j] - top);
    *largest = top;
    return sum;
}
