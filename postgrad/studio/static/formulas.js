// The numbers of the instruments whose states are too many for a table, for pages without a server. Each is the
// twin of its Python `compute` and held equal to it by tests/studio/script/script_test.py: formulas[name](state, given), where
// `given` is what Python found beforehand (studio/script/given.py).
"use strict";

const formulas = (() => {
  const sum = (xs) => xs.reduce((a, b) => a + b, 0);
  const mean = (xs) => sum(xs) / xs.length;
  const dot = (a, b) => a.reduce((total, x, i) => total + x * b[i], 0);
  const plus = (a, b, times = 1) => a.map((x, i) => x + times * b[i]);
  const range = (count) => Array.from({ length: count }, (_, i) => i);
  const grid = (low, high, count) => range(count).map((i) => low + (high - low) * i / (count - 1));
  const sigmoid = (x) => x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x));
  const betterLoss = (gap) => Math.max(-gap, 0) + Math.log1p(Math.exp(-Math.abs(gap)));  // -log sigmoid(gap)
  const logSumExp = (xs) => { const top = Math.max(...xs); return top + Math.log(sum(xs.map((x) => Math.exp(x - top)))); };
  const logSoftmax = (xs) => { const whole = logSumExp(xs); return xs.map((x) => x - whole); };
  const softmax = (xs) => logSoftmax(xs).map(Math.exp);
  const klOf = (p, q) => { const [a, b] = [logSoftmax(p), logSoftmax(q)]; return sum(a.map((x, i) => Math.exp(x) * (x - b[i]))); };

  function bradleyTerry(state, { widest, count }) {
    const chosen = state.chosen + state.shift, rejected = state.rejected + state.shift, gap = chosen - rejected, loss = betterLoss(gap);
    const gaps = grid(-widest, widest, count), slope = -sigmoid(-gap);
    return {
      chosen, rejected, gap, loss, shift: state.shift, loss_unshifted: betterLoss(state.chosen - state.rejected), probability: Math.exp(-loss),
      slope, slope_rejected: -slope, curve: gaps.map((x) => [x, Math.exp(-betterLoss(x))]), losses: gaps.map((x) => [x, betterLoss(x)]),
    };
  }

  function ppoClip(state, { lowest, highest, close, rounding, rows }) {
    const { ratio, advantage, low, high } = state, edges = [1 - low, 1 + high];
    const inner = edges.flatMap((edge) => [edge - close, edge, edge + close]).filter((x) => lowest < x && x < highest);
    const corners = [...new Set([lowest, 1, ...inner, highest])].sort((a, b) => a - b);
    const surrogate = (at, bottom, top) => {
      const bounded = Math.min(Math.max(at, bottom), top), whole = at * advantage, clipped = bounded * advantage < whole;
      return { ratio: at, objective: (clipped ? bounded : at) * advantage + 0, gradient: clipped ? 0 : whole + 0, clipped };
    };
    const held = (at) => surrogate(at, edges[0] - rounding, edges[1] + rounding), free = (at) => surrogate(at, 0, Infinity);
    const drawn = (how, name) => corners.map((x) => [x, how(x)[name]]);
    return {
      ...held(ratio), raw: free(ratio).objective, raw_gradient: free(ratio).gradient, advantage, edges,
      bounded: Math.min(Math.max(ratio, edges[0]), edges[1]), rows,
      flat: advantage > 0 ? [edges[1], highest] : advantage < 0 ? [lowest, edges[0]] : null,
      curve: drawn(held, "objective"), free: drawn(free, "objective"), gradients: drawn(held, "gradient"), free_gradients: drawn(free, "gradient"),
    };
  }

  function grpo(state, { group, flat, methods }) {
    const { rewards, size } = state, first = rewards[0], told = group.completions.slice(0, size);
    const shifted = rewards.map((r) => r - first), middle = mean(shifted), centred = shifted.map((r) => r - middle);
    const std = Math.sqrt(mean(centred.map((x) => x * x)));
    const advantages = state.std ? centred.map((x) => x / Math.max(std, flat)) : centred;
    const praise = mean(advantages), gradient = advantages.map((a) => (praise - a) / size + 0);
    const after = softmax(gradient.map((g) => -state.step * g));
    return {
      size, std_on: state.std, question: group.question, gold: group.gold, model: group.model, texts: told.map((c) => c.text),
      rewards, mean: mean(rewards), std, centred, advantages, after, start: 1 / size, total: sum(after), gradient,
      flat: Math.max(...rewards) - Math.min(...rewards) <= flat, method: methods[state.std ? 0 : 1], rate: state.step, stage: state.stage,
      right: told.map((c) => c.score),
    };
  }

  function dpoPpo(state, { reference, pairs, farthest, count, length, machines, answers }) {
    const { beta, moved } = state, reward = [state.a, state.b, state.c, state.d], ref = reference.map(Math.log);
    const tilt = (share) => plus(ref, reward, share / beta);
    const label = (i, j) => Math.exp(-betterLoss(reward[i] - reward[j]));
    const value = (logits) => dot(softmax(logits), reward) - beta * klOf(logits, ref);
    const ratios = (logits) => plus(logSoftmax(logits), ref, -1);
    const loss = (logits) => {
      const x = ratios(logits);
      return mean(pairs.map(([i, j]) => { const c = label(i, j), gap = beta * (x[i] - x[j]); return c * betterLoss(gap) + (1 - c) * betterLoss(-gap); }));
    };
    const here = tilt(moved), logp = logSoftmax(here), policy = logp.map(Math.exp), ratio = ratios(here), optimum = logSoftmax(tilt(1));
    const implied = ratio.map((x) => beta * x), leashed = plus(reward, implied, -1), expected = dot(policy, leashed);
    const climb = leashed.map((x, i) => policy[i] * (x - expected));
    const descend = [0, 0, 0, 0];
    for (const [i, j] of pairs) {
      const push = beta * (sigmoid(beta * (ratio[i] - ratio[j])) - label(i, j)) / pairs.length;
      descend[i] += push;
      descend[j] -= push;
    }
    const stepped = plus(here, state.machine === "ppo" ? climb : descend, state.machine === "ppo" ? length : -length);
    const times = grid(0, farthest, count), values = times.map((t) => value(tilt(t))), losses = times.map((t) => loss(tilt(t)));
    const norm = (xs) => Math.hypot(...xs), logZ = logSumExp(tilt(1)), says = (i, j) => Math.exp(-betterLoss(beta * (ratio[i] - ratio[j])));
    const worst = reward.indexOf(Math.min(...reward)), best = reward.indexOf(Math.max(...reward));
    return {
      beta, moved, stage: state.stage, answers, reward, reference, policy, optimum: optimum.map(Math.exp), implied, leashed,
      advantage: leashed.map((x) => x - expected), expected, z: Math.exp(logZ), log_z: logZ, kl: klOf(here, ref), mean_reward: dot(policy, reward),
      value: value(here), loss: loss(here), best_value: value(optimum), best_loss: loss(optimum), ppo_slope: norm(climb), dpo_slope: norm(descend),
      machine: state.machine, stepped: softmax(stepped), stepped_value: value(stepped), stepped_loss: loss(stepped), best_kl: klOf(optimum, ref),
      best_reward: dot(optimum.map(Math.exp), reward), worst, best, label: label(3, 0), says: says(3, 0),
      pairs: [[best, worst], ...pairs].map(([i, j]) => ({ label: label(i, j), says: says(i, j) })),
      climb: times.map((t, i) => [t, values[i]]), climb_span: [Math.min(...values), Math.max(...values)],
      descent: times.map((t, i) => [t, losses[i]]), descent_span: [Math.min(...losses), Math.max(...losses)], machines,
    };
  }

  const KL = {  // of d = log pi - log ref: the value, and its slope in log pi
    k1: [(d) => d, () => 1], k2: [(d) => 0.5 * d * d, (d) => d], k3: [(d) => Math.expm1(-d) + d, (d) => -Math.expm1(-d)],
  };
  function klEstimators(state, { reference, widest, count, close }) {
    const ref = reference.map(Math.log), logits = [...ref];
    logits[0] += state.likeliest;
    logits[logits.length - 1] += state.rarest;
    const logp = logSoftmax(logits), chances = logp.map(Math.exp), d = plus(logp, ref, -1);
    const kl = klOf(logits, ref), back = klOf(ref, logits), estimators = {};
    const pulled = (slopes) => { const weighed = plus(chances.map(() => 0), chances.map((p, i) => p * slopes[i])), all = sum(weighed); return weighed.map((w, i) => w - chances[i] * all + 0); };
    for (const [name, [value, slope]] of Object.entries(KL)) {
      const values = d.map(value), middle = dot(chances, values), std = Math.sqrt(dot(chances, values.map((x) => (x - middle) ** 2)));
      estimators[name] = {
        mean: middle, bias: +(middle - kl).toFixed(12) + 0, std, error: std / Math.sqrt(state.samples),
        negative: sum(chances.filter((_, i) => values[i] < -close)), values, gradient: pulled(d.map(slope)),
        curve: grid(-widest, widest, count).map((x) => [x, value(x)]),
      };
    }
    return {
      kl, other_kl: back, right: pulled(d), other: plus(chances, ref.map(Math.exp), -1), chances, d, estimators, name: state.estimator,
      here: estimators[state.estimator], samples: state.samples, same: Math.max(...d.map(Math.abs)) < close, reference,
    };
  }

  const CHOICES = 8;
  const replies = range(2 ** CHOICES).map((i) => range(CHOICES).map((t) => i >> (CHOICES - 1 - t) & 1));
  const before = replies.map((reply) => reply.map((_, t) => sum(reply.slice(0, t))));  // good ones before each choice
  const gaeErrors = new Map();  // by lambda and how wrong the critic is
  function gae(state, { values, needed, lambdas, paths }) {
    const value = before.map((counts) => counts.map((s, t) => values[t][s]));
    const then = before.map((counts, i) => counts.map((s, t) => values[t + 1][s + replies[i][t]]));
    const truly = then.map((row, i) => plus(row, value[i], -1)), empty = value[0][0];
    const critic = value.map((row) => row.map((v) => (1 - state.wrong) * v + state.wrong * empty));
    const advantages = (lam) => replies.map((reply, i) => {
      const found = Array(CHOICES);
      for (let t = CHOICES - 1, next = 0, after = 0; t >= 0; t--) {
        next = found[t] = (t === CHOICES - 1 ? then[i][t] : 0) + after - critic[i][t] + lam * next;
        after = critic[i][t];
      }
      return found;
    });
    const sign = (i, t) => 2 * replies[i][t] - 1, rms = (xs) => Math.sqrt(mean(xs.map((x) => x * x)));
    const errors = (found) => {
      const bias = [], noise = [];
      for (let t = 0; t < CHOICES; t++) {
        const push = found.map((row, i) => row[t] * sign(i, t)), total = Array(CHOICES).fill(0), many = Array(CHOICES).fill(0);
        push.forEach((x, i) => { total[before[i][t]] += x; many[before[i][t]] += 1; });
        const expected = before.map((counts) => total[counts[t]] / many[counts[t]]);
        bias.push(rms(expected.map((x, i) => x - truly[i][t] * sign(i, t))));
        noise.push(rms(plus(push, expected, -1)));
      }
      return [bias, noise];
    };
    const errorsAt = (lam) => {
      const key = `${lam} ${state.wrong}`;
      if (!gaeErrors.has(key)) gaeErrors.set(key, errors(advantages(lam)));
      return gaeErrors.get(key);
    };
    const whole = ([bias, noise]) => {
      const found = { bias: rms(bias), noise: rms(noise) / Math.sqrt(state.samples) };
      return { ...found, error: Math.hypot(found.bias, found.noise) };
    };
    const found = advantages(state.lam), apart = errorsAt(state.lam), curve = lambdas.map((lam) => ({ lam, ...whole(errorsAt(lam)) }));
    const choices = paths[state.path], shown = parseInt(choices.join(""), 2);
    return {
      lam: state.lam, wrong: state.wrong, samples: state.samples, ...whole(apart), best: curve.reduce((a, b) => b.error < a.error ? b : a), curve,
      along: { bias: apart[0], noise: apart[1].map((x) => x / Math.sqrt(state.samples)) }, choices, advantages: found[shown].map((x) => x + 0),
      true: truly[shown], values: value[shown], critic: critic[shown], paid: sum(choices) >= needed, weights: range(CHOICES).map((k) => state.lam ** k),
    };
  }

  function mismatch(state, { data, widest, drawn }) {
    const { rule, cap } = state, kind = data.samplers.find((s) => s.name === state.sampler), edge = 1 / cap;
    const rows = kind.replies.map((r) => r.logp.map((x, i) => { const old = x * data.unit; return [old + r.more[i] * data.fine, old]; }));
    const whole = rows.map((row) => Math.exp(sum(row.map(([said, old]) => old - said))));
    const tokens = rows.flatMap((row, i) => row.map(([said, old]) => {
      const ratio = Math.exp(old - said), chosen = rule === "sequence" ? whole[i] : ratio;
      const counts = { none: 1, truncated: Math.min(ratio, cap), banded: ratio >= edge && ratio <= cap ? ratio : 0, sequence: whole[i] <= cap ? whole[i] : 0 }[rule];
      return { said, old, apart: old - said, ratio, chosen, counts, touched: Math.abs(counts - chosen) > 1e-9 };
    }));
    const all = (name) => tokens.map((t) => t[name]), counts = all("counts"), ratios = all("ratio");
    const shape = { none: [[0, 1], [widest, 1]], truncated: [[0, 0], [cap, cap], [widest, cap]],
      banded: [[0, 0], [edge, 0], [edge, edge], [cap, cap], [cap, 0], [widest, 0]], sequence: [[0, 0], [cap, cap], [cap, 0], [widest, 0]] }[rule];
    const marks = new Map();
    for (const t of tokens) if (t.chosen <= widest) { const mark = [py.round(t.chosen, 2), py.round(t.counts, 2), t.touched]; marks.set(String(mark), mark); }
    const bars = Array(8).fill(0);
    for (const t of tokens) { const size = Math.abs(t.apart); bars[size < 1e-6 ? 0 : Math.min(7, 7 + Math.floor(Math.log10(size)))] += 1; }
    const furthest = [...tokens].sort((a, b) => Math.abs(b.apart) - Math.abs(a.apart)).slice(0, drawn);
    const square = sum(counts.map((x) => x * x));
    return {
      rule, cap, sampler: state.sampler, is: kind.is, tokens: tokens.length, replies: rows.length, mean_apart: mean(all("apart").map(Math.abs)),
      most: Math.max(...ratios), least: Math.min(...ratios), kl: mean(tokens.map((t) => Math.expm1(-(t.said - t.old)) + t.said - t.old)),
      above: ratios.filter((x) => x > cap).length, below: ratios.filter((x) => x < edge).length, whole_above: whole.filter((x) => x > cap).length, whole,
      touched: tokens.filter((t) => t.touched).length, mean_weight: mean(counts), worth: square ? sum(counts) ** 2 / (square * counts.length) : 0,
      points: furthest.map((t) => [Math.exp(t.said), Math.exp(t.old), t.touched]), shape,
      marks: [...marks.values()].sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]), bars, command: data.command, step: data.step,
      prompts: data.prompts, each: data.each,
    };
  }

  /** The labeller's reward model: reward_head.fit by its kernel, so that a step solves as many equations as there are labels. */
  function head({ to_label, unseen, width, prior, steps, better }) {
    const rows = (text) => {
      const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), all = new Float32Array(bytes.buffer);
      return range(all.length / width).map((i) => [...all.subarray(i * width, (i + 1) * width)]);
    };
    const like = rows(to_label), middle = range(width).map((k) => mean(like.map((row) => row[k])));
    const spread = middle.map((m, k) => Math.max(Math.sqrt(sum(like.map((row) => (row[k] - m) ** 2)) / (like.length - 1)), 1e-6));
    const standard = (row) => row.map((x, k) => (x - middle[k]) / spread[k] / Math.sqrt(width));
    const pairs = (all) => range(all.length / 2).map((i) => [standard(all[2 * i]), standard(all[2 * i + 1])]);
    const known = pairs(like), others = pairs(rows(unseen)), apart = known.map(([a, b]) => plus(a, b, -1));
    const gram = apart.map((x) => apart.map((y) => dot(x, y)));

    function solve(matrix, right) {  // Gauss, with the largest pivot
      const rows = matrix.map((row, i) => [...row, right[i]]), n = rows.length;
      for (let k = 0; k < n; k++) {
        let top = k;
        for (let i = k + 1; i < n; i++) if (Math.abs(rows[i][k]) > Math.abs(rows[top][k])) top = i;
        [rows[k], rows[top]] = [rows[top], rows[k]];
        for (let i = k + 1; i < n; i++) {
          const share = rows[i][k] / rows[k][k];
          for (let j = k; j <= n; j++) rows[i][j] -= share * rows[k][j];
        }
      }
      const found = Array(n);
      for (let k = n - 1; k >= 0; k--) found[k] = (rows[k][n] - sum(range(n - k - 1).map((j) => rows[k][k + 1 + j] * found[k + 1 + j]))) / rows[k][k];
      return found;
    }
    const trained = py.cache((labels) => {
      const used = range(labels.length).filter((i) => labels[i] !== "s"), n = used.length;
      const won = used.map((i) => ({ a: 1, b: 0, t: 0.5 })[labels[i]]), kernel = used.map((i) => used.map((j) => gram[i][j]));
      let weight = used.map(() => 0);
      for (let step = 0; step < (n ? steps : 0); step++) {
        const chance = kernel.map((row) => sigmoid(dot(row, weight)));
        const pull = chance.map((p, i) => (p - won[i]) / n + prior * weight[i]);
        const curved = kernel.map((row, i) => row.map((x, j) => chance[i] * (1 - chance[i]) / n * x + (i === j ? prior : 0)));
        weight = plus(weight, solve(curved, pull), -1);
      }
      return used.reduce((w, i, k) => plus(w, apart[i], weight[k]), Array(width).fill(0));
    });
    const onUnseen = py.cache((labels) => {
      const w = trained(labels);
      return mean(others.map(([a, b], i) => { const gap = dot(a, w) - dot(b, w); return gap === 0 || better[i] === 0 ? 0.5 : +(gap > 0 === better[i] > 0); }));
    });
    return {
      onUnseen, gaps: (labels) => apart.map((x) => dot(x, trained(labels))), scores: (labels, i) => others[i].map((x) => dot(x, trained(labels))),
      lastPair: (labels) => {
        const i = range(labels.length).findLast((k) => labels[k] !== "s");
        if (i === undefined) return null;
        const [a, b] = known[i].map((x) => dot(x, trained(labels))), first = betterLoss(a - b), second = betterLoss(b - a);
        return { number: i + 1, label: labels[i], a, b, p: Math.exp(-first), loss: { a: first, b: second, t: (first + second) / 2 }[labels[i]] };
      },
    };
  }

  return { head, "bradley-terry": bradleyTerry, "ppo-clip": ppoClip, grpo, "dpo-ppo": dpoPpo, "kl-estimators": klEstimators, gae, mismatch };
})();
