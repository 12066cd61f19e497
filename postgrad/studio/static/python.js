// What Python and Jinja mean, for the scripts that `postgrad studio export` makes of them (studio/script/).
// Lists and tuples are arrays, dictionaries plain objects; every number is a float.
"use strict";

const py = (() => {
  class Markup {
    constructor(text) { this.text = text; }
    toString() { return this.text; }
  }
  class Named { constructor(given) { Object.assign(this, given); } }

  const isPlain = (x) => x !== null && typeof x === "object" && !Array.isArray(x) && Object.getPrototypeOf(x) === Object.prototype;
  const options = (args) => args.at(-1) instanceof Named ? args.pop() : {};
  const iter = (x) => isPlain(x) ? Object.keys(x) : x;
  const many = (args) => [...iter(args.length === 1 ? args[0] : args)];
  const truth = (x) => x instanceof Markup ? x.text !== "" : Array.isArray(x) ? x.length > 0 : isPlain(x) ? Object.keys(x).length > 0 : Boolean(x);

  function eq(a, b) {
    if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((x, i) => eq(x, b[i]));
    if (isPlain(a) && isPlain(b)) return eq(Object.keys(a).sort(), Object.keys(b).sort()) && Object.keys(a).every((k) => eq(a[k], b[k]));
    return typeof a === "boolean" || typeof b === "boolean" ? +a === +b : a === b;
  }
  function less(a, b) {
    if (!Array.isArray(a)) return a < b;
    const at = a.findIndex((x, i) => !eq(x, b[i]));
    return at < 0 ? a.length < b.length : less(a[at], b[at]);
  }
  function best(args, wins) {
    const { key = (x) => x, default: otherwise } = options(args), all = many(args);
    if (!all.length && otherwise !== undefined) return otherwise;
    return all.reduce((a, b) => wins(key(b), key(a)) ? b : a);
  }

  // numbers as text: decimals by the exact binary value, half to even
  function nearHalf(size, digits) {
    const scaled = size * 10 ** digits;
    return !(scaled < 1e9) || Math.abs(scaled - Math.floor(scaled) - 0.5) < 1e-5;
  }
  function fixed(x, digits) {
    if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
    if (Math.abs(x) >= 1e21) return BigInt(x).toString() + (digits ? "." + "0".repeat(digits) : "");
    const sign = x < 0 || Object.is(x, -0) ? "-" : "", size = Math.abs(x);
    if (!nearHalf(size, digits)) return sign + size.toFixed(digits);
    const exact = size.toFixed(Math.min(100, digits + 40)), point = exact.indexOf("."), tail = exact.slice(point + 1 + digits);
    if (!/^50*$/.test(tail)) return sign + size.toFixed(digits);
    const head = exact.slice(0, point) + exact.slice(point + 1, point + 1 + digits);
    const even = (BigInt(head) + BigInt(head) % 2n).toString().padStart(digits + 1, "0");
    return sign + (digits ? `${even.slice(0, -digits)}.${even.slice(-digits)}` : even);
  }
  function power(x, digits) {
    const [long, exponent] = Math.abs(x).toExponential(digits + 40).split("e"), kept = long.slice(0, digits ? digits + 2 : 1);
    const even = /^50*$/.test(long.slice(digits + 2)) && +kept.at(-1) % 2 === 0;
    const [mantissa, tail] = even ? [kept, exponent] : Math.abs(x).toExponential(digits).split("e");
    return `${x < 0 ? "-" : ""}${mantissa}e${tail[0]}${tail.slice(1).padStart(2, "0")}`;
  }
  function general(x, digits) {
    if (!Number.isFinite(x)) return fixed(x, 0);
    const exponent = x === 0 ? 0 : +x.toExponential(digits - 1).split("e")[1];
    const plain = (text) => text.includes(".") ? text.replace(/\.?0+$/, "") : text;
    if (exponent >= -4 && exponent < digits) return plain(fixed(x, digits - 1 - exponent));
    const [mantissa, tail] = power(x, digits - 1).split("e");
    return `${plain(mantissa)}e${tail}`;
  }
  function format(x, how = "") {
    const [, sign, group, digits, kind] = /^(\+?)(,?)(?:\.(\d+))?([a-z]?)$/.exec(how);
    if (!kind && !group && digits === undefined) return str(x);
    let text = { f: fixed, e: power, g: general }[kind || "f"](+x, digits === undefined ? (kind ? 6 : 0) : +digits);
    if (group) text = text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
    return sign && !text.startsWith("-") ? `+${text}` : text;
  }
  const str = (x) => x === null ? "None" : x === true ? "True" : x === false ? "False" : String(x);
  const repr = (x) => typeof x === "string" ? `'${x}'` : str(x);
  const round = (x, digits = 0) => nearHalf(Math.abs(x), digits) ? +fixed(x, digits) : Math.round(x * 10 ** digits) / 10 ** digits;

  /** A number for people, as pages.num; but a whole number is told by `digits`. */
  function num(value, digits = 3) {
    if (value === null || value === undefined) return "–";
    if (typeof value === "boolean" || typeof value === "string") return str(value);
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "∞" : "\u2212∞";
    if (Math.abs(value) < 1e-12 || Math.abs(value) >= 1e-6) value = +value.toFixed(12);
    const size = Math.abs(value);
    const text = size && (size < 0.5 * 10 ** -digits || size >= 1e6) ? power(value, Math.max(digits - 1, 1))
      : fixed(value || 0, size < 100 ? digits : Math.min(digits, 1));
    return text.replaceAll("-", "\u2212");
  }

  function fsum(values) {  // Shewchuk: exact, then rounded once
    const parts = [];
    for (let x of values) {
      let i = 0;
      for (let y of parts) {
        if (Math.abs(x) < Math.abs(y)) [x, y] = [y, x];
        const high = x + y, low = y - (high - x);
        if (low) parts[i++] = low;
        x = high;
      }
      parts.splice(i, parts.length, x);
    }
    return parts.reduceRight((a, b) => a + b, 0);
  }
  const math = { ...Object.fromEntries(["sqrt", "log", "log2", "log10", "exp", "hypot", "floor", "ceil"].map((name) => [name, Math[name]])),
    isfinite: Number.isFinite, inf: Infinity, nan: NaN, fsum };

  // lists, texts, dictionaries
  function slice(x, from, to, step) {
    if (step === -1) return typeof x === "string" ? [...x].reverse().join("") : [...x].reverse();
    const part = x.slice(from ?? 0, to ?? undefined);
    return step > 1 ? part.filter((_, i) => i % step === 0) : part;
  }
  const at = (x, key) => typeof key === "number" && key < 0 ? x[x.length + key] : x[key];
  const has = (x, key) => typeof x === "string" ? x.includes(key) : Array.isArray(x) ? x.some((y) => eq(y, key)) : Object.hasOwn(x, key);
  function unique(values) {
    const found = [];
    for (const x of iter(values)) if (!found.some((y) => eq(x, y))) found.push(x);
    return found;
  }
  const methods = {
    text: {
      lower: (x) => x.toLowerCase(), upper: (x) => x.toUpperCase(), replace: (x, a, b) => x.replaceAll(a, b),
      join: (x, parts) => [...iter(parts)].join(x), split: (x, by) => by === undefined ? x.split(/\s+/).filter(Boolean) : x.split(by),
      startswith: (x, start) => x.startsWith(start), endswith: (x, end) => x.endsWith(end), strip: (x) => x.trim(),
      partition: (x, by) => { const i = x.indexOf(by); return i < 0 ? [x, "", ""] : [x.slice(0, i), by, x.slice(i + by.length)]; },
      rsplit: (x, by) => { const i = x.lastIndexOf(by); return i < 0 ? [x] : [x.slice(0, i), x.slice(i + by.length)]; },
      removeprefix: (x, start) => x.startsWith(start) ? x.slice(start.length) : x, count: (x, part) => x.split(part).length - 1,
      isascii: (x) => /^[\x00-\x7f]*$/.test(x), isdecimal: (x) => /^\d+$/.test(x),
    },
    list: {
      append: (x, y) => { x.push(y); return null; }, index: (x, y) => x.findIndex((z) => eq(y, z)), count: (x, y) => x.filter((z) => eq(y, z)).length,
    },
    dict: {
      get: (x, key, otherwise = null) => Object.hasOwn(x, key) ? x[key] : otherwise, items: (x) => Object.entries(x), values: (x) => Object.values(x),
      keys: (x) => Object.keys(x), update: (x, more) => { Object.assign(x, more); return null; },
      setdefault: (x, key, value) => Object.hasOwn(x, key) ? x[key] : x[key] = value,
    },
  };
  function call(x, name, ...args) {
    const kind = typeof x === "string" ? methods.text : Array.isArray(x) ? methods.list : isPlain(x) ? methods.dict : x;
    if (typeof kind[name] !== "function") throw new Error(`script has no ${name}() for ${str(x).slice(0, 40)}`);
    return kind === x ? x[name](...args) : kind[name](x, ...args);
  }

  // Jinja
  const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;" };
  const escape = (text) => text.replace(/[&<>"']/g, (c) => ESCAPES[c]);
  const out = (x) => x instanceof Markup ? x.text : x === undefined ? "" : escape(str(x));
  const compare = { le: (a, b) => a <= b, ge: (a, b) => a >= b, lt: (a, b) => a < b, gt: (a, b) => a > b, eq };
  const filters = {
    num, abs: Math.abs, length: (x) => [...iter(x)].length, list: (x) => [...iter(x)], sum: (x, how) => [...x].reduce((a, b) => Array.isArray(a) ? [...a, ...b] : a + b, how?.start ?? 0),
    max: (x) => best([x], (a, b) => less(b, a)), min: (x) => best([x], less), round, int: (x) => Math.trunc(+x), float: Number,
    upper: (x) => x.toUpperCase(), string: str, join: (x, by = "") => [...x].map(str).join(by), first: (x) => [...x][0],
    replace: (x, a, b) => str(x).replaceAll(a, b), format: (how, x) => how.replace(/%\.(\d)f/, (_, digits) => fixed(x, +digits)),
    default: (x, otherwise) => x === undefined ? otherwise : x, attr: (x, name) => x[name],
    map: (x, how, ...args) => [...x].map((y) => how instanceof Named ? y[how.attribute] : filters[how](y, ...args)),
    select: (x, test, y) => [...x].filter((z) => compare[test](z, y)), rejectattr: (x, name) => [...x].filter((z) => !truth(z[name])),
    selectattr: (x, name, test, y) => [...x].filter((z) => compare[test](z[name], y)),
    tojson: (x) => new Markup((Array.isArray(x) ? `[${x.map((y) => JSON.stringify(y)).join(", ")}]` : JSON.stringify(x)).replace(/[<>&']/g, (c) => `\\u00${c.charCodeAt(0).toString(16)}`)),
    forceescape: (x) => new Markup(escape(str(x))), urlencode: (x) => new URLSearchParams(x).toString(),
  };
  const macros = new Map();

  return {
    Markup, named: (given) => new Named(given), truth, eq, iter, num, format, repr, str, round, math, slice, at, has, call, out, filters, fixed,
    and: (...parts) => { let x; for (const part of parts) if (!truth(x = part())) return x; return x; },
    or: (...parts) => { let x; for (const part of parts) if (truth(x = part())) return x; return x; },
    add: (a, b) => Array.isArray(a) ? [...a, ...b] : a + b, mod: (a, b) => a - b * Math.floor(a / b), merge: (a, b) => ({ ...a, ...b }),
    get: (x, name) => { if (x === undefined || x === null) throw new Error(`nothing has no ${name}`); return x[name]; },
    item: (x) => (key) => at(x, key), concat: (...parts) => parts.map(str).join(""),
    len: (x) => [...iter(x)].length, abs: Math.abs, sum: (x, start = 0) => { for (const y of iter(x)) start += +y; return start; },
    max: (...args) => best(args, (a, b) => less(b, a)), min: (...args) => best(args, less),
    all: (x) => [...x].every(truth), any: (x) => [...x].some(truth), next: (x, otherwise) => { for (const y of x) return y; return otherwise; },
    sorted: (...args) => {
      const { key = (x) => x, reverse = false } = options(args), sign = reverse ? -1 : 1;
      return many(args).sort((a, b) => sign * (less(key(a), key(b)) ? -1 : less(key(b), key(a)) ? 1 : 0));
    },
    zip: (...args) => { options(args); const [first, ...rest] = args.map((x) => [...iter(x)]); return first.map((x, i) => [x, ...rest.map((y) => y[i])])
      .slice(0, Math.min(...rest.map((y) => y.length), first.length)); },
    enumerate: (...args) => { const { start = 0 } = options(args); return [...iter(args[0])].map((x, i) => [i + start, x]); },
    range: (a, b, step = 1) => { const [from, to] = b === undefined ? [0, a] : [a, b]; return Array.from({ length: Math.max(0, Math.ceil((to - from) / step)) }, (_, i) => from + i * step); },
    map: (f, x) => [...iter(x)].map((y) => f(y)), reversed: (x) => [...iter(x)].reverse(), set: unique,
    list: (x = []) => [...iter(x)], tuple: (x = []) => [...iter(x)], dict: (pairs = []) => isPlain(pairs) ? { ...pairs } : Object.fromEntries([...pairs]),
    int: (x) => Math.trunc(+x), float: Number, bool: truth, isinstance: (x, kind) => kind === py.tuple || kind === py.list ? Array.isArray(x)
      : kind === py.dict ? isPlain(x) : kind === py.str ? typeof x === "string" : kind === py.bool ? typeof x === "boolean" : typeof x === "number",
    replace: (x, changes) => ({ ...x, ...changes }),
    record: (kind) => (...args) => new kind(...args),
    cache: (f) => { const kept = new Map(); return (...args) => { const key = JSON.stringify(args); if (!kept.has(key)) kept.set(key, f(...args)); return kept.get(key); }; },
    median: (values) => { const all = [...values].sort((a, b) => a - b), middle = all.length >> 1; return all.length % 2 ? all[middle] : (all[middle - 1] + all[middle]) / 2; },
    pairwise: (values) => [...values].slice(1).map((x, i) => [values[i], x]),
    number: (x) => typeof x === "number" ? x : typeof x === "string" && x.trim() ? Number(x) : NaN,
    table: (answers) => (...args) => answers[JSON.stringify(args)],
    isMapping: isPlain, loop: (rows, i) => ({ index: i + 1, index0: i, first: i === 0, last: i === rows.length - 1, length: rows.length }),
    macros: (template) => { if (!macros.has(template)) macros.set(template, template()); return macros.get(template); },
  };
})();
