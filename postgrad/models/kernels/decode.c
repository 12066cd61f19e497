/* One new token for every row: chosen and noted in one call, and through all layers in another. The kernels of
   cpu.c with the matrix products of product.c between them, in the order of RequestBatch.advance and Engine.step,
   which say what each line is for. Layers have a norm before each half; other norms, biases and a cap where they are given. */
#include "cpu.h"

typedef struct {
    const float *before_attention, *before_mlp, *qkv, *o, *gate_up, *down, *qkv_bias, *o_bias;
    const float *after_attention, *after_mlp, *q_norm, *k_norm, *cos, *sin, *k_prompt, *v_prompt;
    float *k, *v;
    count window, gelu;
    double cap, query_scale, attention_scale, mlp_scale;
    const float *router;  /* or NULL; gate_up and down are then those of all experts */
    int16_t *routes;
    count experts, active, width, renormalised, step;  /* step: routes of a token */
} Layer;

typedef struct {
    count layers, D, F, widest, Hq, Hkv, Dh, half, read, capacity;  /* F: of an MLP; widest: or of an expert */
    double eps, embed_scale;
    const float *embed, *norm;
    const Layer *layer;
} Decoder;

typedef struct {
    count width, most, ends;
    double temperature, scale, cap;
    const double *u;
    count *at;
    const count *slot, *shown;
    unsigned char *done;
    count *written, *out;
    float *logps;
    const count *end;
} Rows;

void add_norm(int, count, count, float *, const float *, const float *, float, float *);
void place(int, count, count, count, count, count, count, const float *, const float *, const float *, const count *, const count *,
           const count *, float *, float *, float *);
void attend(int, count, count, count, count, count, count, count, float, const float *, const float *, const float *, const count *,
            const count *, const float *, const float *, const count *, const count *, float *);
void norm(int, count, count, const float *, const float *, float, float *, float *);
void reshape(int, count, count, float, float, float *);
void gelu(int, count, count, const float *, count, const float *, count, float *);
void gate(int, count, count, const float *, count, const float *, count, float *);
void product(int, count, count, count, const float *, const float *, float *);
count panel(int);
count pick(int, count, count, const float *, const double *, float, count *, float *);
void note(int, count, count, count, count, const count *, const float *, count *, const count *, const count *, unsigned char *,
          count *, count *, float *, const count *, count *);

/* y [R, out] = x [R, in] weight^T + bias, the weight in panels. */
static void linear(int threads, count R, count in, count out, const float *x, const float *weight, const float *bias, float *y) {
    product(threads, R, in, out, x, weight, y);
    if (bias)
        for (count r = 0; r < R; r++)
            for (count i = 0; i < out; i++) y[r * out + i] += bias[i];
}

/* The norm of each of H heads of every row, in place: [R, .] with rows wide apart. */
static void norm_heads(int threads, count R, count H, count Dh, count wide, float *x, const float *weight, float eps,
                       float *inverse) {
    if (weight)
        for (count r = 0; r < R; r++) norm(1, H, Dh, x + r * wide, weight, eps, x + r * wide, inverse);
}

static void scale_rows(count R, count width, count wide, float scale, float *x) {
    if (scale != 1)
        for (count r = 0; r < R; r++)
            for (count i = 0; i < width; i++) x[r * wide + i] *= scale;
}

static void gated(int threads, const Layer *l, count R, count F, const float *ab, float *y) {
    (l->gelu ? gelu : gate)(threads, R, F, ab, 2 * F, ab + F, 2 * F, y);
}

/* The likeliest experts of a row, likelier ones first, and their shares; p [E] is used up. */
static void choose_experts(const Layer *l, count D, const float *x, float *p, count *chosen, float *share) {
    count E = l->experts;
    float most = -INFINITY, sum = 0, kept = 0;
    for (count e = 0; e < E; e++) {
        float dot = 0;
        for (count d = 0; d < D; d++) dot += x[d] * l->router[e * D + d];
        p[e] = dot;
        most = dot > most ? dot : most;
    }
    for (count e = 0; e < E; e++) sum += p[e] = exponential(p[e] - most);
    for (count k = 0; k < l->active; k++) {
        count best = 0;
        for (count e = 1; e < E; e++) best = p[e] > p[best] ? e : best;
        chosen[k] = best;
        share[k] = p[best] / sum;
        kept += share[k];
        p[best] = -1;
    }
    for (count k = 0; k < l->active && l->renormalised; k++) share[k] /= kept;
}

/* y [R, D]: what each row's experts give, added in the order of experts; each expert's rows are one product. */
static void mix(int threads, const Layer *l, count R, count D, const float *x, const count *slot, const count *at, count capacity,
                float *ab, float *scratch, count *numbers, float *y) {
    count E = l->experts, K = l->active, F = l->width, wide = panel(1), up = (2 * F + wide - 1) / wide * wide * D,
          down = (D + wide - 1) / wide * wide * F, *mine = numbers + R * K;
    float *rows = scratch, *given = rows + R * D, *p = given + R * D, *share = p + E;
    for (count r = 0; r < R; r++) {
        choose_experts(l, D, x + r * D, p, numbers + r * K, share + r * K);
        for (count k = 0; k < K; k++) l->routes[(slot[r] * capacity + at[r]) * l->step + k] = numbers[r * K + k] + 1;
    }
    memset(y, 0, R * D * sizeof(float));
    for (count e = 0; e < E; e++) {
        count n = 0;
        for (count i = 0; i < R * K; i++)
            if (numbers[i] == e) {
                memcpy(rows + n * D, x + i / K * D, D * sizeof(float));
                mine[n++] = i;
            }
        if (!n) continue;
        product(threads, n, D, 2 * F, rows, l->gate_up + e * up, ab);
        gated(threads, l, n, F, ab, ab + R * 2 * F);
        product(threads, n, F, D, ab + R * 2 * F, l->down + e * down, given);
        for (count i = 0; i < n; i++)
            for (count d = 0; d < D; d++) y[mine[i] / K * D + d] += share[mine[i]] * given[i * D + d];
    }
}

/* scratch: R * (2 D + 2 Hq Dh + the wider of (Hq + 2 Hkv) Dh and 3 widest) + Hq floats, and for E experts with K active
   R * (2 D + K) + E; numbers: R * (2 + K + 1). */
void decode(int threads, const Decoder *m, count R, const count *token, const count *at, const count *slot, const count *prompt,
            const count *prompt_length, float *scratch, count *numbers, float *out) {
    count D = m->D, heads = m->Hq * m->Dh, wide = (m->Hq + 2 * m->Hkv) * m->Dh;
    float *x = scratch, *y = x + R * D, *q = y + R * D, *seen = q + R * heads, *ab = seen + R * heads, *f = ab + R * 2 * m->F;
    float *inverse = ab + R * (wide > 3 * m->widest ? wide : 3 * m->widest);
    count *position = numbers, *length = numbers + R;
    const float *delta = NULL;
    for (count r = 0; r < R; r++) {
        memcpy(x + r * D, m->embed + token[r] * D, D * sizeof(float));
        scale_rows(1, D, D, m->embed_scale, x + r * D);
        position[r] = prompt_length[r] + at[r];
        length[r] = at[r] + 1;
    }
    for (count i = 0; i < m->layers; i++) {
        const Layer *l = m->layer + i;
        add_norm(threads, R, D, x, delta, l->before_attention, m->eps, out);
        linear(threads, R, D, wide, out, l->qkv, l->qkv_bias, ab);
        norm_heads(threads, R, m->Hq, m->Dh, wide, ab, l->q_norm, m->eps, inverse);
        norm_heads(threads, R, m->Hkv, m->Dh, wide, ab + heads, l->k_norm, m->eps, inverse);
        scale_rows(R, heads, wide, l->query_scale, ab);
        place(threads, R, m->Hq, m->Hkv, m->Dh, m->half, m->capacity, ab, l->cos, l->sin, position, slot, at, l->k,
              l->v, q);
        attend(threads, R, m->Hq, m->Hkv, m->Dh, m->read, m->capacity, l->window, l->cap, q, l->k_prompt, l->v_prompt,
               prompt, prompt_length, l->k, l->v, slot, length, seen);
        linear(threads, R, heads, D, seen, l->o, l->o_bias, y);
        if (l->after_attention) add_norm(threads, R, D, y, NULL, l->after_attention, m->eps, y);
        scale_rows(R, D, D, l->attention_scale, y);
        add_norm(threads, R, D, x, y, l->before_mlp, m->eps, out);
        if (l->router) {
            mix(threads, l, R, D, out, slot, at, m->capacity, ab, inverse + m->Hq, numbers + 2 * R, y);
        } else {
            linear(threads, R, D, 2 * m->F, out, l->gate_up, NULL, ab);
            gated(threads, l, R, m->F, ab, f);
            linear(threads, R, m->F, D, f, l->down, NULL, y);
        }
        if (l->after_mlp) add_norm(threads, R, D, y, NULL, l->after_mlp, m->eps, y);
        scale_rows(R, D, D, l->mlp_scale, y);
        delta = y;
    }
    add_norm(threads, R, D, x, delta, m->norm, m->eps, out);
}

/* Returns the first row without a distribution, before anything is noted, or -1. */
count choose(int threads, const Rows *w, count R, count D, count V, const float *hidden, const float *head, float *logits,
             double *u, count *token, float *logp, count *where) {
    product(threads, R, D, V, hidden, head, logits);
    reshape(threads, R, V, w->scale, w->cap, logits);
    for (count r = 0; r < R; r++) u[r] = w->u[w->slot[r] * w->width + w->at[r]];
    count bad = pick(threads, R, V, logits, u, w->temperature, token, logp);
    if (bad < 0)
        note(threads, R, w->width, w->ends, w->most, token, logp, w->at, w->slot, w->shown, w->done, w->written, w->out, w->logps,
             w->end, where);
    return bad;
}
