/* The kernels of cpu.py in C, float32. plain.py says what each one means.

   Every loop over rows may run on several threads; what a row gives never depends on the other rows, nor on the number of
   threads: each sum has one fixed order. The loops are plain so that the compiler vectorises them (-fassociative-math lets it
   split a sum over the lanes of a vector); only the small matrix product of attention names its vectors. The processor's
   handling of denormal numbers is left as it is found. */
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

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

/* y = x / rms(x) * weight for one row; returns 1 / rms. */
INLINE float norm_row(count D, const float *restrict x, const float *restrict weight, float eps, float *restrict y) {
    float squares = 0;
    for (count d = 0; d < D; d++) squares += x[d] * x[d];
    float inverse = 1.0f / sqrtf(squares / D + eps);
    SIMD for (count d = 0; d < D; d++) y[d] = x[d] * inverse * weight[d];
    return inverse;
}

INLINE void rotate_row(count half, float sign, const float *restrict x, const float *restrict cos, const float *restrict sin,
                       float *restrict y) {
    SIMD for (count d = 0; d < half; d++) {
        y[d] = x[d] * cos[d] - x[d + half] * sin[d] * sign;
        y[d + half] = x[d + half] * cos[d] + x[d] * sin[d] * sign;
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
        for (count h = 0; h < Hq; h++, from += Dh) rotate_row(half, 1, from, c, s, q + (r * Hq + h) * Dh);
        for (count h = 0; h < Hkv; h++, from += Dh)
            rotate_row(half, 1, from, c, s, k_cache + ((slot[r] * Hkv + h) * room + at[r]) * Dh);
        for (count h = 0; h < Hkv; h++, from += Dh)
            memcpy(v_cache + ((slot[r] * Hkv + h) * room + at[r]) * Dh, from, Dh * sizeof(float));
    }
}

/* Scores of G queries with n keys that stand one after another: s [G, .] with rows `step` apart. */
INLINE void score_of(count G, count n, count Dh, float scale, const float *restrict q, const float *restrict k, float *restrict s,
                  count step) {
    for (count j = 0; j < n; j++)
        for (count g = 0; g < G; g++) {
            float dot = 0;
            for (count d = 0; d < Dh; d++) dot += q[g * Dh + d] * k[j * Dh + d];
            s[g * step + j] = dot * scale;
        }
}

/* The same with the usual sizes as constants, for which the compiler leaves no loop over Dh. */
static void score(count G, count n, count Dh, float scale, const float *q, const float *k, float *s, count step) {
    if (Dh == 16) score_of(G, n, 16, scale, q, k, s, step);
    else if (Dh == 32) score_of(G, n, 32, scale, q, k, s, step);
    else if (Dh == 64) score_of(G, n, 64, scale, q, k, s, step);
    else if (Dh == 128) score_of(G, n, 128, scale, q, k, s, step);
    else score_of(G, n, Dh, scale, q, k, s, step);
}

void attend(int threads, count R, count Hq, count Hkv, count Dh, count S, count room, count window, const float *q,
            const float *k_prompt, const float *v_prompt, const count *prompt, const count *prompt_length,
            const float *k_cache, const float *v_cache, const count *slot, const count *length, float *y) {
    count G = Hq / Hkv, step = whole(S + room);
    float scale = 1.0f / sqrtf(Dh);
    TEAM {
        float *s = malloc(G * step * sizeof(float));
        SHARED for (count rh = 0; rh < R * Hkv; rh++) {
            count r = rh / Hkv, h = rh % Hkv, P = prompt_length[r], all = P + length[r];
            count first = window && all > window ? all - window : 0;  /* the first position in sight */
            count skip = first > P ? first - P : 0, read = first < P ? P - first : 0, own = length[r] - skip;
            count n = whole(read + own);  /* whole vectors of scores, the last ones of nothing */
            count from = ((prompt[r] * Hkv + h) * S + (read ? first : 0)) * Dh, mine = ((slot[r] * Hkv + h) * room + skip) * Dh;
            const float *qs = q + (r * Hq + h * G) * Dh;
            float *out = y + (r * Hq + h * G) * Dh;
            score(G, read, Dh, scale, qs, k_prompt + from, s, step);
            score(G, own, Dh, scale, qs, k_cache + mine, s + read, step);
            for (count g = 0; g < G; g++) {
                for (count j = read + own; j < n; j++) s[g * step + j] = -INFINITY;
                float top, inverse = 1.0f / soften(n, s + g * step, &top);
                SIMD for (count j = 0; j < n; j++) s[g * step + j] *= inverse;
            }
            multiply(0, G, Dh, read, s, step, 1, v_prompt + from, Dh, out, Dh);
            multiply(1, G, Dh, own, s + read, step, 1, v_cache + mine, Dh, out, Dh);
        }
        free(s);
    }
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
        for (count t = start; t < stop; t++) part += exponential((logits[t] - top) * cold);
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

void norm(int threads, count N, count D, const float *x, const float *weight, float eps, float *y, float *inverse) {
    ROWS for (count n = 0; n < N; n++) inverse[n] = norm_row(D, x + n * D, weight, eps, y + n * D);
}

/* parts [N / 64 rounded up, D]: each block of 64 rows sums its share of dweight, so that threads change nothing. */
void norm_backward(int threads, count N, count D, const float *x, const float *weight, const float *inverse, const float *dy,
                   float *dx, float *parts, float *dweight) {
    count blocks = (N + 63) / 64;
    ROWS for (count b = 0; b < blocks; b++) {
        float *restrict part = parts + b * D;
        memset(part, 0, D * sizeof(float));
        for (count n = b * 64; n < N && n < (b + 1) * 64; n++) {
            const float *restrict xn = x + n * D, *restrict g = dy + n * D;
            float *restrict out = dx + n * D, along = 0, i = inverse[n];
            for (count d = 0; d < D; d++) along += g[d] * weight[d] * xn[d];
            along *= i * i / D;
            SIMD for (count d = 0; d < D; d++) {
                out[d] = i * (g[d] * weight[d] - xn[d] * along);
                part[d] += g[d] * xn[d] * i;
            }
        }
    }
    memset(dweight, 0, D * sizeof(float));
    for (count b = 0; b < blocks; b++) {
        SIMD for (count d = 0; d < D; d++) dweight[d] += parts[b * D + d];
    }
}

/* sign -1 turns back: the transpose of a rotation, which is its backward. xn, as all such steps: from one token to the next. */
void rotate(int threads, count N, count H, count Dh, float sign, const float *x, count xn, const float *cos, const float *sin,
            float *y) {
    count half = Dh / 2;
    ROWS for (count n = 0; n < N; n++)
        for (count h = 0; h < H; h++)
            rotate_row(half, sign, x + n * xn + h * Dh, cos + n * half, sin + n * half, y + (n * H + h) * Dh);
}

void gate(int threads, count N, count F, const float *a, count an, const float *b, count bn, float *y) {
    ROWS for (count n = 0; n < N; n++) gate_row(F, a + n * an, b + n * bn, y + n * F);
}

void gate_backward(int threads, count N, count F, const float *a, count an, const float *b, count bn, const float *dy,
                   float *da, float *db, count dn) {
    ROWS for (count n = 0; n < N; n++) {
        const float *restrict x = a + n * an, *restrict y = b + n * bn, *restrict g = dy + n * F;
        float *restrict dx = da + n * dn, *restrict dz = db + n * dn;
        SIMD for (count f = 0; f < F; f++) {
            float s = sigmoid(x[f]);
            dz[f] = g[f] * x[f] * s;
            dx[f] = g[f] * y[f] * s * (1.0f + x[f] * (1.0f - s));
        }
    }
}

/* Attention of sequences after prefixes. One sequence and one head of keys at a time: its keys are gathered, then its queries
   are taken in blocks, whose scores stand in a scratch: a row for each of the G queries that a token has for these keys. */
typedef struct {
    count N, M, Hq, Hkv, Dh, window, qn, kn, vn;
    const float *q, *k, *v;
    const count *start, *stop, *prefix_start, *prefix_stop;
} Sequences;

/* Tokens i to i + tokens - 1 of a sequence, and the keys first to first + keys - 1 that some of them look at. */
typedef struct { count i, tokens, position, first, keys; } Block;

INLINE count first_seen(count window, count position) { return window && position >= window ? position - window + 1 : 0; }

INLINE Block block_at(const Sequences *s, count m, count i, count most) {
    count n = s->stop[m] - s->start[m], position = s->prefix_stop[m] - s->prefix_start[m] + i;
    count tokens = n - i < most ? n - i : most, first = first_seen(s->window, position);
    return (Block){ i, tokens, position, first, position + tokens - first };
}

/* Key j of sequence m is this token. */
INLINE count token_of(const Sequences *s, count m, count j) {
    count prefix = s->prefix_stop[m] - s->prefix_start[m];
    return j < prefix ? s->prefix_start[m] + j : s->start[m] + j - prefix;
}

INLINE count seen_by(const Sequences *s, count m) { return s->stop[m] - s->start[m] + s->prefix_stop[m] - s->prefix_start[m]; }

static count longest(const Sequences *s) {
    count most = 0;
    for (count m = 0; m < s->M; m++) most = seen_by(s, m) > most ? seen_by(s, m) : most;
    return most + WIDTH;  /* room for a last vector that is not full */
}

/* The keys (or values) of a head: as they stand [., Dh] where `rows` is given, transposed [Dh, step] where `turned` is. */
static void gather(const Sequences *s, count m, count h, const float *x, count xn, float *rows, float *turned, count step) {
    for (count j = 0; j < seen_by(s, m); j++) {
        const float *from = x + token_of(s, m, j) * xn + h * s->Dh;
        if (rows) memcpy(rows + j * s->Dh, from, s->Dh * sizeof(float));
        if (turned)
            for (count d = 0; d < s->Dh; d++) turned[d * step + j] = from[d];
    }
}

/* The rows of a block, times scale, one after the other: [tokens * G, Dh]. */
static void take(count tokens, count width, float scale, const float *x, count xn, float *restrict rows) {
    for (count t = 0; t < tokens; t++) {
        SIMD for (count d = 0; d < width; d++) rows[t * width + d] = x[t * xn + d] * scale;
    }
}

/* The scores of the block's token t with keys that it does not look at become -inf. */
INLINE void hide(const Sequences *s, const Block *b, count t, count wide, float *restrict row) {
    unsigned from = first_seen(s->window, b->position + t) - b->first, many = b->position + t + 1 - b->first - from;
    SIMD for (unsigned j = 0; j < (unsigned)wide; j++) row[j] = j - from < many ? row[j] : -INFINITY;
}

void attention(int threads, const Sequences *s, float *y, float *lse) {
    count Dh = s->Dh, Hq = s->Hq, Hkv = s->Hkv, G = Hq / Hkv, most = (BLOCK + G - 1) / G, step = longest(s);
    TEAM {
        float *kt = calloc(2 * step * Dh + most * G * (step + 2 * Dh), sizeof(float)), *vs = kt + step * Dh;
        float *p = vs + step * Dh, *qs = p + most * G * step, *out = qs + most * G * Dh;
        SHARED for (count mh = 0; mh < s->M * Hkv; mh++) {
            count m = mh / Hkv, h = mh % Hkv, start = s->start[m];
            gather(s, m, h, s->k, s->kn, NULL, kt, step);
            gather(s, m, h, s->v, s->vn, vs, NULL, 0);
            for (count i = 0; i < s->stop[m] - start; i += most) {
                Block b = block_at(s, m, i, most);
                count rows = b.tokens * G, wide = whole(b.keys);
                take(b.tokens, G * Dh, 1.0f / sqrtf(Dh), s->q + (start + i) * s->qn + h * G * Dh, s->qn, qs);
                multiply(0, rows, wide, Dh, qs, Dh, 1, kt + b.first, step, p, step);
                for (count r = 0; r < rows; r++) {
                    float *row = p + r * step, top, sum, inverse;
                    hide(s, &b, r / G, wide, row);
                    sum = soften(wide, row, &top), inverse = 1.0f / sum;
                    lse[(start + i + r / G) * Hq + h * G + r % G] = top + logf(sum);
                    SIMD for (count j = 0; j < wide; j++) row[j] *= inverse;
                }
                multiply(0, rows, Dh, b.keys, p, step, 1, vs + b.first * Dh, Dh, out, Dh);
                for (count t = 0; t < b.tokens; t++)
                    memcpy(y + ((start + i + t) * Hq + h * G) * Dh, out + t * G * Dh, G * Dh * sizeof(float));
            }
        }
        free(kt);
    }
}

/* One sequence and head of the backward: dq is written, dk and dv are added to. With p the weights and d = dy v the slope of
   each, the slope of a score is p (d - sum of p d), and the sum is dy y. */
static void slopes(const Sequences *s, count m, count h, count step, count most, const float *y, const float *lse,
                   const float *dy, float *dq, float *dk, float *dv, float *scratch) {
    count Dh = s->Dh, G = s->Hq / s->Hkv, n = seen_by(s, m), area = step * Dh, block = most * G * Dh, yn = s->Hq * Dh;
    float *kt = scratch, *vt = kt + area, *ks = vt + area, *dks = ks + area, *dvs = dks + area, *qs = dvs + area;
    float *ys = qs + block, *dys = ys + block, *out = dys + block, *p = out + block, *d = p + most * G * step;
    gather(s, m, h, s->k, s->kn, ks, kt, step);
    gather(s, m, h, s->v, s->vn, NULL, vt, step);
    memset(dks, 0, 2 * area * sizeof(float));
    for (count i = 0; i < s->stop[m] - s->start[m]; i += most) {
        Block b = block_at(s, m, i, most);
        count rows = b.tokens * G, wide = whole(b.keys), token = s->start[m] + i;
        count corner = token * yn + h * G * Dh;
        take(b.tokens, G * Dh, 1.0f / sqrtf(Dh), s->q + token * s->qn + h * G * Dh, s->qn, qs);
        take(b.tokens, G * Dh, 1.0f, y + corner, yn, ys);
        take(b.tokens, G * Dh, 1.0f, dy + corner, yn, dys);
        multiply(0, rows, wide, Dh, qs, Dh, 1, kt + b.first, step, p, step);
        multiply(0, rows, wide, Dh, dys, Dh, 1, vt + b.first, step, d, step);
        for (count r = 0; r < rows; r++) {
            float *restrict pr = p + r * step, *restrict dr = d + r * step, along = 0;
            float total = lse[(token + r / G) * s->Hq + h * G + r % G];
            for (count c = 0; c < Dh; c++) along += ys[r * Dh + c] * dys[r * Dh + c];
            hide(s, &b, r / G, wide, pr);
            SIMD for (count j = 0; j < wide; j++) {
                pr[j] = exponential(pr[j] - total);
                dr[j] = pr[j] * (dr[j] - along);
            }
        }
        multiply(0, rows, Dh, b.keys, d, step, 1, ks + b.first * Dh, Dh, out, Dh);
        multiply(1, b.keys, Dh, rows, d, 1, step, qs, Dh, dks + b.first * Dh, Dh);
        multiply(1, b.keys, Dh, rows, p, 1, step, dys, Dh, dvs + b.first * Dh, Dh);
        for (count t = 0; t < b.tokens; t++)
            take(1, G * Dh, 1.0f / sqrtf(Dh), out + t * G * Dh, 0, dq + corner + t * yn);
    }
    for (count j = 0; j < n; j++) {
        count at = (token_of(s, m, j) * s->Hkv + h) * Dh;
        SIMD for (count c = 0; c < Dh; c++) dk[at + c] += dks[j * Dh + c];
        SIMD for (count c = 0; c < Dh; c++) dv[at + c] += dvs[j * Dh + c];
    }
}

static count root_of(const count *root, count m) {
    while (root[m] != m) m = root[m];
    return m;
}

/* Sequences that share keys (one is, or shares, the other's prefix) are one group, which one thread takes in order: root[m] = m
   for the first of a group, after[m] is the next one or -1. */
static void group(const Sequences *s, count *root, count *after) {
    count *owner = malloc((s->N + s->M) * sizeof(count)), *head = owner + s->N;
    for (count m = 0; m < s->M; m++) {
        root[m] = m, head[m] = -1;
        for (count t = s->start[m]; t < s->stop[m]; t++) owner[t] = m;
    }
    for (count m = 0; m < s->M; m++)
        for (count t = s->prefix_start[m]; t < s->prefix_stop[m]; t = s->stop[owner[t]]) {
            count a = root_of(root, m), b = root_of(root, owner[t]);
            root[a > b ? a : b] = a > b ? b : a;
        }
    for (count m = s->M - 1; m >= 0; m--) {
        count r = root_of(root, m);
        after[m] = head[r], head[r] = m;
    }
    free(owner);
}

/* dk, dv [N, Hkv, Dh] must be zero at first. */
void attention_backward(int threads, const Sequences *s, const float *y, const float *lse, const float *dy, float *dq, float *dk,
                        float *dv) {
    count Dh = s->Dh, Hkv = s->Hkv, G = s->Hq / Hkv, most = (BLOCK + G - 1) / G, step = longest(s);
    count *root = malloc(2 * s->M * sizeof(count)), *after = root + s->M;
    group(s, root, after);
    TEAM {
        float *scratch = calloc(5 * step * Dh + most * G * (4 * Dh + 2 * step), sizeof(float));
        SHARED for (count mh = 0; mh < s->M * Hkv; mh++)
            if (root[mh / Hkv] == mh / Hkv)
                for (count m = mh / Hkv; m >= 0; m = after[m])
                    slopes(s, m, mh % Hkv, step, most, y, lse, dy, dq, dk, dv, scratch);
        free(scratch);
    }
    free(root);
}
