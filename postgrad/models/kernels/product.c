/* The matrix products of a step of sampling: few rows by weights that stay the same for a whole call, so the
   weights are laid out for it once, in panels. What a row gives depends neither on how many stand beside it
   nor on the number of threads, bit for bit: an element is a chain of sums in the order of depth, cut into
   equal parts where it would be longer than CHAIN. */
#include "cpu.h"

enum { VECTORS = 2, PANEL = VECTORS * WIDTH, CHAIN = 384 };
#if defined(__AVX512F__) || defined(__aarch64__)
#define TALL 12  /* rows at a time: their sums and a row of a panel stand in 32 registers */
#else
#define TALL 6   /* in 16 */
#endif

/* Outputs of a panel. */
count panel(int threads) { return PANEL; }

/* Rows of weight [out, in] as the outputs from `first` on: panels [., in, PANEL], zeros where there are none. */
void pack(int threads, count out, count in, count first, const float *weight, float *panels) {
    count last = (first + out - 1) / PANEL;
    ROWS for (count p = first / PANEL; p <= last; p++) {
        count from = p * PANEL > first ? 0 : first - p * PANEL, to = p < last ? PANEL : first + out - p * PANEL;
        const float *rows = weight + (p * PANEL - first) * in;
        for (count k = 0; k < in; k++)
            for (count o = from; o < to; o++) panels[(p * in + k) * PANEL + o] = rows[o * in + k];
    }
}

/* y [rows, PANEL] = x panel, or y += x panel; rows is a constant where it is called. */
INLINE void block(int rows, int add, count depth, const float *restrict x, count xn, const float *restrict panel,
                  float *restrict y, count yn) {
    vec sum[TALL][VECTORS];
    #pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < VECTORS; j++) sum[i][j] = (vec){0};
    for (count k = 0; k < depth; k++) {
        #pragma GCC unroll 12
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] += x[i * xn + k] * *(const vec *)(panel + k * PANEL + j * WIDTH);
    }
    #pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < VECTORS; j++) {
            vec *to = (vec *)(y + i * yn + j * WIDTH);
            if (add) sum[i][j] += *to;
            *to = sum[i][j];
        }
}

#define OF(rows) case rows: block(rows, add, depth, x, xn, panel, y, yn); break;
static void some_rows(count rows, int add, count depth, const float *x, count xn, const float *panel, float *y, count yn) {
    switch (rows) {
        OF(1) OF(2) OF(3) OF(4) OF(5) OF(6)
#if TALL > 6
        OF(7) OF(8) OF(9) OF(10) OF(11) OF(12)
#endif
    }
}

/* y [R, out] = x [R, in] weight^T, the weight in panels. */
void product(int threads, count R, count in, count out, const float *x, const float *panels, float *y) {
    count chains = (in + CHAIN - 1) / CHAIN, part = (in + chains - 1) / chains, times = (R + TALL - 1) / TALL;
    ROWS for (count p = 0; p < (out + PANEL - 1) / PANEL; p++) {
        float edge[TALL * PANEL];  /* the last panel may be wider than what is left of y */
        int inside = (p + 1) * PANEL <= out;
        for (count from = 0; from < in; from += part)
            for (count t = 0; t < times; t++) {
                count first = R * t / times, rows = R * (t + 1) / times - first, depth = from + part < in ? part : in - from;
                float *to = y + first * out + p * PANEL;
                const float *xs = x + first * in + from, *mine = panels + (p * in + from) * PANEL;
                if (inside) {
                    some_rows(rows, from > 0, depth, xs, in, mine, to, out);
                    continue;
                }
                some_rows(rows, 0, depth, xs, in, mine, edge, PANEL);
                for (count r = 0; r < rows; r++)
                    for (count j = 0; j < out - p * PANEL; j++)
                        to[r * out + j] = from ? to[r * out + j] + edge[r * PANEL + j] : edge[r * PANEL + j];
            }
    }
}
