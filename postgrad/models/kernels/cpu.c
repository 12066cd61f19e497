/* The kernels of cpu.py in C, float32. plain.py says what each one means.

   Every loop over rows may run on several threads; what a row gives never depends on the other rows, nor on the number of
   threads: each sum has one fixed order. The loops are plain so that the compiler vectorises them (-fassociative-math lets it
   split a sum over the lanes of a vector); only the small matrix product of attention names its vectors. The processor's
   handling of denormal numbers is left as it is found. */
#include "cpu.h"

void add_norm(int threads, count R, count D, float *x, const float *delta, const float *weight, float eps, float *y) {
    ROWS for (count r = 0; r < R; r++) {
        float *restrict row = x + r * D;
        if (delta) {
            SIMD for (count d = 0; d < D; d++) row[d] += delta[r * D + d];
        }
        norm_row(D, row, weight, eps, y + r * D);
    }
}

void place(int threads, count R, count Hq, count Hkv, count Dh, count half, count capacity, const float *qkv,
           const float *cos, const float *sin, const count *position, const count *slot, const count *at,
           float *k_cache, float *v_cache, float *q) {
    ROWS for (count r = 0; r < R; r++) {
        const float *from = qkv + r * (Hq + 2 * Hkv) * Dh, *c = cos + position[r] * half, *s = sin + position[r] * half;
        for (count h = 0; h < Hq; h++, from += Dh) rotate_row(Dh, half, 1, from, c, s, q + (r * Hq + h) * Dh);
        for (count h = 0; h < Hkv; h++, from += Dh)
            rotate_row(Dh, half, 1, from, c, s, k_cache + ((slot[r] * Hkv + h) * capacity + at[r]) * Dh);
        for (count h = 0; h < Hkv; h++, from += Dh)
            memcpy(v_cache + ((slot[r] * Hkv + h) * capacity + at[r]) * Dh, from, Dh * sizeof(float));
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

void attend(int threads, count R, count Hq, count Hkv, count Dh, count S, count capacity, count window,
            float cap, const float *q, const float *k_prompt, const float *v_prompt, const count *prompt,
            const count *prompt_length, const float *k_cache, const float *v_cache, const count *slot,
            const count *length, float *y) {
    count G = Hq / Hkv, step = whole(S + capacity);
    float scale = 1.0f / sqrtf(Dh);
    TEAM {
        float *s = zeros(G * step);
        SHARED for (count rh = 0; rh < R * Hkv; rh++) {
            count r = rh / Hkv, h = rh % Hkv, P = prompt_length[r], all = P + length[r];
            count first = window && all > window ? all - window : 0;  /* the first position in sight */
            count skip = first > P ? first - P : 0, read = first < P ? P - first : 0, own = length[r] - skip;
            count n = whole(read + own);  /* whole vectors of scores, the last ones of nothing */
            count from = ((prompt[r] * Hkv + h) * S + (read ? first : 0)) * Dh;
            count mine = ((slot[r] * Hkv + h) * capacity + skip) * Dh;
            const float *qs = q + (r * Hq + h * G) * Dh;
            float *out = y + (r * Hq + h * G) * Dh;
            score(G, read, Dh, scale, qs, k_prompt + from, s, step);
            score(G, own, Dh, scale, qs, k_cache + mine, s + read, step);
            for (count g = 0; g < G; g++) {
                if (cap) SIMD for (count j = 0; j < n; j++) s[g * step + j] = capped(s[g * step + j], cap);
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

/* Each of the `ends` tokens ends a row; out and logps have rows of `width`. */
void note(int threads, count R, count width, count ends, count most, const count *token, const float *logp, count *at,
          const count *slot, const count *shown, unsigned char *done, count *written, count *out, float *logps, const count *end,
          count *where) {
    for (count r = 0; r < R; r++) {
        count cell = slot[r] * width + at[r];
        out[cell] = token[r], logps[cell] = logp[r];
        where[r] = shown[r] + at[r];
        written[r] += !done[r];
        at[r] += at[r] < most;
        done[r] |= at[r] >= most;
        for (count e = 0; e < ends; e++) done[r] |= token[r] == end[e];
    }
}

/* rows ascend, so none is overwritten before it has moved. */
void move_up(int threads, count n, count before, count kinds, count size, count D, const count *rows, const count *nobody,
             count *columns, unsigned char *done, float *hidden) {
    for (count i = 0; i < n; i++) {
        if (rows[i] == i) continue;
        for (count k = 0; k < kinds; k++) columns[k * size + i] = columns[k * size + rows[i]];
        done[i] = done[rows[i]];
        memcpy(hidden + i * D, hidden + rows[i] * D, D * sizeof(float));
    }
    for (count i = n; i < before; i++) {
        for (count k = 0; k < kinds; k++) columns[k * size + i] = nobody[k];
        done[i] = 1;
    }
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
void rotate(int threads, count N, count H, count Dh, count half, float sign, const float *x, count xn, const float *cos,
            const float *sin, float *y) {
    ROWS for (count n = 0; n < N; n++)
        for (count h = 0; h < H; h++)
            rotate_row(Dh, half, sign, x + n * xn + h * Dh, cos + n * half, sin + n * half, y + (n * H + h) * Dh);
}

void gelu(int threads, count N, count F, const float *a, count an, const float *b, count bn, float *y) {
    ROWS for (count n = 0; n < N; n++) gelu_row(F, a + n * an, b + n * bn, y + n * F);
}

/* Logits times scale, and capped if there is a cap. */
void reshape(int threads, count R, count V, float scale, float cap, float *x) {
    if (scale == 1 && !cap) return;
    ROWS for (count r = 0; r < R; r++)
        SIMD for (count v = 0; v < V; v++) x[r * V + v] = cap ? capped(x[r * V + v] * scale, cap) : x[r * V + v] * scale;
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
