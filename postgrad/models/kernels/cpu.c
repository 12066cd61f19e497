/* The kernels of cpu.py in C, float32. plain.py says what each one means.

   Every loop over rows may run on several threads; what a row gives never depends on the other rows, nor on the number of
   threads: each sum has one fixed order. The loops are plain so that the compiler vectorises them; only the small matrix
   product of attention names its vectors. The processor's handling of denormal numbers is left as it is found. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t count;
#define OMP(words) _Pragma(#words)
#define TEAM OMP(omp parallel num_threads(threads) if(threads > 1))
#define SHARED OMP(omp for schedule(static))
#define ROWS OMP(omp parallel for schedule(static) num_threads(threads) if(threads > 1))
#define SIMD OMP(omp simd)
#define SUM(x) OMP(omp simd reduction(+:x))
#define MAX(x) OMP(omp simd reduction(max:x))

#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX__)
#define WIDTH 8
#else
#define WIDTH 4
#endif
typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))

/* e^x to about 1e-7: x = n log 2 + r, a polynomial in r (Cephes), and n into the exponent. 0 below -87.3, e^88 above 88. */
INLINE float exponential(float x) {
    float z = x < -87.3f ? -87.3f : x;
    z = z > 88.0f ? 88.0f : z;
    float n = rintf(z * 1.44269504089f);
    float r = z - n * 0.693359375f + n * 2.12194440e-4f;
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

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

/* y = x / rms(x) * weight for one row; returns 1 / rms. */
INLINE float norm_row(count D, const float *restrict x, const float *restrict weight, float eps, float *restrict y) {
    float squares = 0;
    SUM(squares) for (count d = 0; d < D; d++) squares += x[d] * x[d];
    float inverse = 1.0f / sqrtf(squares / D + eps);
    SIMD for (count d = 0; d < D; d++) y[d] = x[d] * inverse * weight[d];
    return inverse;
}

INLINE void rotate_row(count half, const float *restrict x, const float *restrict cos, const float *restrict sin,
                       float *restrict y) {
    SIMD for (count d = 0; d < half; d++) {
        y[d] = x[d] * cos[d] - x[d + half] * sin[d];
        y[d + half] = x[d + half] * cos[d] + x[d] * sin[d];
    }
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

/* Scores to e^(score - largest) in place; returns their sum and the largest. */
INLINE float soften(count n, float *restrict s, float *largest) {
    float top = -INFINITY, sum = 0;
    MAX(top) for (count j = 0; j < n; j++) top = s[j] > top ? s[j] : top;
    SUM(sum) for (count j = 0; j < n; j++) sum += s[j] = exponential(s[j] - top);
    *largest = top;
    return sum;
}

void add_norm(int threads, count R, count D, float *x, const float *delta, const float *weight, float eps, float *y) {
    ROWS for (count r = 0; r < R; r++) {
        float *restrict row = x + r * D;
        if (delta) {
            SIMD for (count d = 0; d < D; d++) row[d] += delta[r * D + d];
        }
        norm_row(D, row, weight, eps, y + r * D);
    }
}

void place(int threads, count R, count Hq, count Hkv, count Dh, count room, const float *qkv, const float *cos,
           const float *sin, const count *position, const count *slot, const count *at, float *k_cache, float *v_cache,
           float *q) {
    count half = Dh / 2;
    ROWS for (count r = 0; r < R; r++) {
        const float *from = qkv + r * (Hq + 2 * Hkv) * Dh, *c = cos + position[r] * half, *s = sin + position[r] * half;
        for (count h = 0; h < Hq; h++, from += Dh) rotate_row(half, from, c, s, q + (r * Hq + h) * Dh);
        for (count h = 0; h < Hkv; h++, from += Dh)
            rotate_row(half, from, c, s, k_cache + ((slot[r] * Hkv + h) * room + at[r]) * Dh);
        for (count h = 0; h < Hkv; h++, from += Dh)
            memcpy(v_cache + ((slot[r] * Hkv + h) * room + at[r]) * Dh, from, Dh * sizeof(float));
    }
}

/* Scores of G queries with n keys that stand one after another: s [G, .] with rows `step` apart. */
INLINE void score(count G, count n, count Dh, float scale, const float *restrict q, const float *restrict k, float *restrict s,
                  count step) {
    for (count j = 0; j < n; j++)
        for (count g = 0; g < G; g++) {
            float dot = 0;
            SUM(dot) for (count d = 0; d < Dh; d++) dot += q[g * Dh + d] * k[j * Dh + d];
            s[g * step + j] = dot * scale;
        }
}

void attend(int threads, count R, count Hq, count Hkv, count Dh, count S, count room, count window, const float *q,
            const float *k_prompt, const float *v_prompt, const count *prompt, const count *prompt_length,
            const float *k_cache, const float *v_cache, const count *slot, const count *length, float *y) {
    count G = Hq / Hkv, step = S + room;
    float scale = 1.0f / sqrtf(Dh);
    TEAM {
        float *s = malloc(G * step * sizeof(float));
        SHARED for (count rh = 0; rh < R * Hkv; rh++) {
            count r = rh / Hkv, h = rh % Hkv, P = prompt_length[r], all = P + length[r];
            count first = window && all > window ? all - window : 0;  /* the first position in sight */
            count skip = first > P ? first - P : 0, read = first < P ? P - first : 0, own = length[r] - skip;
            count from = ((prompt[r] * Hkv + h) * S + (read ? first : 0)) * Dh, mine = ((slot[r] * Hkv + h) * room + skip) * Dh;
            const float *qs = q + (r * Hq + h * G) * Dh;
            float *out = y + (r * Hq + h * G) * Dh;
            score(G, read, Dh, scale, qs, k_prompt + from, s, step);
            score(G, own, Dh, scale, qs, k_cache + mine, s + read, step);
            for (count g = 0; g < G; g++) {
                float largest, inverse = 1.0f / soften(read + own, s + g * step, &largest);
                SIMD for (count j = 0; j < read + own; j++) s[g * step + j] *= inverse;
            }
            multiply(0, G, Dh, read, s, step, 1, v_prompt + from, Dh, out, Dh);
            multiply(1, G, Dh, own, s + read, step, 1, v_cache + mine, Dh, out, Dh);
        }
        free(s);
    }
}

void gate_halves(int threads, count R, count F, const float *ab, float *y) {
    ROWS for (count r = 0; r < R; r++) gate_row(F, ab + 2 * r * F, ab + (2 * r + 1) * F, y + r * F);
}

/* The token where the running sum of e^((logit - largest) / temperature) passes u times the whole: sums of blocks first, then
   the tokens of one block. A token of probability zero is never taken. Returns 0 where the logits have no distribution. */
static int pick_row(count V, const float *restrict logits, double u, float temperature, double *restrict sums, count *token,
                    float *logp) {
    const count block = 64;
    float top = -INFINITY, cold = 1.0f / temperature;
    double whole = 0, sum = 0, before = 0;
    MAX(top) for (count t = 0; t < V; t++) top = logits[t] > top ? logits[t] : top;
    for (count start = 0; start < V; start += block) {
        count stop = start + block < V ? start + block : V;
        float part = 0;
        SUM(part) for (count t = start; t < stop; t++) part += exponential((logits[t] - top) * cold);
        whole += sums[start / block] = part;
    }
    if (!(whole > 0 && isfinite(top))) return 0;
    count last = 0;  /* the last block with anything in it, in case rounding puts u past the end; so in the block too */
    for (count b = 0; b * block < V && sum <= u * whole; sum += sums[b++])
        if (sums[b] > 0) last = b, before = sum;
    count stop = (last + 1) * block < V ? (last + 1) * block : V;
    sum = before;
    for (count t = last * block; t < stop && sum <= u * whole; t++) {
        float p = exponential((logits[t] - top) * cold);
        if (p > 0) *token = t;
        sum += p;
    }
    *logp = (float)((double)(logits[*token] - top) / temperature - log(whole));
    return 1;
}

/* Returns the first row without a distribution, or -1. */
count pick(int threads, count R, count V, const float *logits, const double *u, float temperature, count *token, float *logp) {
    count bad = R;
    TEAM {
        double *sums = malloc((V / 64 + 1) * sizeof(double));
        OMP(omp for schedule(static) reduction(min:bad)) for (count r = 0; r < R; r++)
            if (!pick_row(V, logits + r * V, u[r], temperature, sums, token + r, logp + r) && r < bad) bad = r;
        free(sums);
    }
    return bad == R ? -1 : bad;
}
