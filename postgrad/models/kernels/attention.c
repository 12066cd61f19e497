/* Attention in training, forward and backward; plain.py says what it means, cpu.c how rows and threads are
   kept apart. */
#include "cpu.h"

/* Attention of sequences after prefixes. One sequence and one head of keys at a time: its keys are gathered, then its queries
   are taken in blocks, whose scores stand in a scratch: a row for each of the G queries that a token has for these keys. */
typedef struct {
    count N, M, Hq, Hkv, Dh, window, qn, kn, vn;
    double cap;
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
        float *kt = zeros(2 * step * Dh + most * G * (step + 2 * Dh)), *vs = kt + step * Dh;
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
                    float *row = p + r * step, top, sum, inverse, cap = s->cap;
                    if (cap) SIMD for (count j = 0; j < wide; j++) row[j] = capped(row[j], cap);
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
            float cap = s->cap, inverse = cap ? 1.0f / cap : 0.0f;
            for (count c = 0; c < Dh; c++) along += ys[r * Dh + c] * dys[r * Dh + c];
            if (cap) SIMD for (count j = 0; j < wide; j++) pr[j] = capped(pr[j], cap);
            /* of a capped score s the slope is 1 - (s / cap)^2 times that without a cap */
            SIMD for (count j = 0; j < wide; j++) dr[j] = (dr[j] - along) * (1.0f - pr[j] * inverse * (pr[j] * inverse));
            hide(s, &b, r / G, wide, pr);
            SIMD for (count j = 0; j < wide; j++) {
                pr[j] = exponential(pr[j] - total);
                dr[j] *= pr[j];
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
        float *scratch = zeros(5 * step * Dh + most * G * (4 * Dh + 2 * step));
        SHARED for (count mh = 0; mh < s->M * Hkv; mh++)
            if (root[mh / Hkv] == mh / Hkv)
                for (count m = mh / Hkv; m >= 0; m = after[m])
                    slopes(s, m, mh % Hkv, step, most, y, lse, dy, dq, dk, dv, scratch);
        free(scratch);
    }
    free(root);
}
