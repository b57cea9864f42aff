// Looks inside the second checker: its interval arithmetic against exact fractions, and the numbers that its verdicts depend on.
//
// The source is evaluated in memory, so that the same tests run on a broken copy (tests/mutation/mutants_of_second_checker.py).

import { createHash } from "node:crypto";

const INSIDE = [
  "interval", "point", "exact", "add", "sub", "neg", "times", "half", "quarter", "mul", "square", "div", "root", "floorRoot", "positive", "larger",
  "smaller", "sum", "dot", "least", "most", "lowest", "classify", "sha256", "check", "numberOf", "arrayOf", "notNegative", "finite", "flag", "word",
  "vector", "field", "optional", "endsOf", "sparseOf", "dense", "checkMultipliers", "eliminates", "defectOf", "BadFile", "NotProved", "shown", "isShare",
  "isAmount", "isPositive", "fewer", "checkComplement", "variancesOf", "BITS", "ONE", "ZERO", "UNIT", "Unable", "readKnots", "gainOf", "firstWhoGains",
  "residualOf", "floorDiv", "ceilDiv", "floorShift", "ceilShift",
];
//: Places where a verdict depends on a number: the text that stands there, and what is heard before it ("low" for lower bounds, "high" for upper).
const PLACES = [
  ["if (margin > 0n || (margin === 0n && ends.every", 'hear("low", margin);'],
  ["if (!(margin > 0n || (margin === 0n && end.omega", 'hear("low", margin);'],
  ["if (reached !== null && reached >= 0n)", 'if (reached !== null) hear("low", reached);'],
  ["return !(most(more.hi, less.hi) * 1_000", 'hear("high", more.hi); hear("high", less.hi); hear("low", stakes.lo);'],
  ["return sub(own, utility).lo > mul(", 'hear("low", sub(own, utility).lo); hear("high", drift.hi);'],
  ["missing.hi <= room(bound).hi;", 'hear("high", missing.hi) || hear("high", room(bound).hi) ||'],
  ["if (mul(lossWeight, below).lo >= L.hi", 'hear("low", below.lo);'],
  ["if ((goal.budget < Infinity && keeping.lo", 'hear("low", keeping.lo);'],
  ["return [closer, farther];", 'closer.forEach((v) => hear("low", v)); farther.forEach((v) => hear("high", v));'],
  ["return { ...region, near, far };", 'near.forEach((v) => hear("low", v)); far.forEach((v) => hear("high", v));'],
];
const WRAPPED = `
const both = (v) => { hear("low", v.lo); hear("high", v.hi); };
{ const inner = pointOf; pointOf = (...given) => { const at = inner(...given); [at.S, at.spend, at.loss, ...at.slope, ...at.squares].forEach(both); return at; }; }
{ const inner = regretOf; regretOf = (...given) => { const found = inner(...given); both(found); return found; }; }
{ const inner = residualOf; residualOf = (...given) => { const found = inner(...given); both(found); return found; }; }
{ const inner = judgeNumbers; judgeNumbers = (...given) => { const found = inner(...given); both(found); return found; }; }
`;

/** The source, with every number that a verdict depends on told to hear(kind, value). */
export function audible(source) {
  let text = source.slice(0, source.indexOf("// ------------------------------------------------------------------ on the command line"));
  for (const [place, said] of PLACES) {
    if (text.split(place).length !== 2) throw new Error(`the checker does not hold "${place}" once`);
    text = text.replace(place, `/*<*/${said}/*>*/ ${place}`);
  }
  return text;
}

/** The checker inside: its functions by name, with so many binary digits. */
export function inside(text, hear = () => {}, bits = 256) {
  const body = text.replaceAll("export ", "").replace("const BITS = 256n", `const BITS = ${bits}n`).replaceAll("2 ** 256", `2 ** ${bits}`);
  return new Function("hear", `"use strict";\n${body}\n${WRAPPED}\nreturn { ${INSIDE.join(", ")} };`)(hear);
}

/** Everything that is heard while a file is checked, and the report. */
export function listen(text, file, bits = 256) {
  const heard = [];
  const report = inside(text, (kind, value) => { heard.push([kind, value]); }, bits).check(file);
  return { heard, report };
}

export const digest = (heard) => createHash("sha256").update(heard.map(([kind, v]) => `${kind} ${v}`).join("\n")).digest("hex").slice(0, 16);

/** What is wrong with an honest file's numbers at fewer digits: bounds that are better than those of more digits. */
export function tooGood(few, fewBits, many, manyBits) {
  if (few.length !== many.length) return `${few.length} numbers instead of ${many.length}`;
  const shift = BigInt(manyBits - fewBits);
  const at = few.findIndex(([kind, v], i) => (kind === "low" ? v << shift > many[i][1] : v << shift < many[i][1]));
  return at < 0 ? null : `number ${at}, a ${few[at][0]} bound`;
}

// ------------------------------------------------------------------ exact fractions

const under = (n, d) => { if (d < 0n) { n = -n; d = -d; } const r = ((n % d) + d) % d; return (n - r) / d; };
const over = (n, d) => -under(-n, d);
const smallest = (list) => list.reduce((a, b) => (b < a ? b : a)), largest = (list) => list.reduce((a, b) => (b > a ? b : a));

/** Whole numbers drawn again and again in the same order. */
function drawn(seed) {
  let state = BigInt(seed);
  return (limit) => { state = (state * 6364136223846793005n + 1442695040888963407n) % (1n << 64n); return (state >> 20n) % limit; };
}

/** The fraction n / d that a binary64 number is. */
function fractionOf(value) {
  let d = 1n;
  while (!Number.isInteger(value)) {
    if (Math.abs(value) < 2 ** -900) { value *= 2 ** 200; d <<= 200n; } else { value *= 2; d <<= 1n; }
  }
  return [BigInt(value), d];
}

function* hostileIntervals(one) {
  const next = drawn(7), ends = [-3n * one, -one - 1n, -one, -7n, -1n, 0n, 1n, 5n, one - 1n, one, one + 3n, 5n * one / 3n];
  for (let i = 0; i < 6; i++) ends.push((next(one * 8n) - 4n * one), next(1000n) - 500n);
  ends.sort((a, b) => (a < b ? -1 : 1));
  for (let i = 0; i < ends.length; i++) for (const j of [i, i + 1, i + 3, i + 7, i + 12, i + 17]) if (j < ends.length) yield { lo: ends[i], hi: ends[j] };
}

// ------------------------------------------------------------------ unit tests

const same = (found, lo, hi, what) => { if (found.lo !== lo || found.hi !== hi) throw new Error(`${what} is [${found.lo}, ${found.hi}], not [${lo}, ${hi}]`); };
const equal = (found, expected, what) => { if (found !== expected) throw new Error(`${what} is ${found}, not ${expected}`); };
function refuses(kind, act, what) {
  try { act(); } catch (error) { if (error instanceof kind) return; throw new Error(`${what} fails with ${error.name}: ${error.message}`); }
  throw new Error(`${what} is accepted`);
}

export const TESTS = {
  "every binary64 number is enclosed as narrowly as possible"(c) {
    const values = [0.1, -0.1, 1, -1, 2 ** -256, -(2 ** -256), 3 * 2 ** -257, -3 * 2 ** -257, 5e-324, -5e-324, 2 ** -1022, -(2 ** -1030), 1e-100, -1e-77, 1e300, -1e300, Number.MAX_VALUE, 0.5, 1 / 3, 2 ** -204, 2 ** -205, 1.5 * 2 ** -205, 2 ** 52, 2 ** 53 + 2];
    for (const v of values) { const [n, d] = fractionOf(v); same(c.exact(v), under(n * c.ONE, d), over(n * c.ONE, d), `exact(${v})`); }
    same(c.exact(0), 0n, 0n, "exact(0)");
    same(c.exact(-0), 0n, 0n, "exact(-0)");
    for (const v of [NaN, Infinity, -Infinity]) refuses(Error, () => c.exact(v), `exact(${v})`);
  },
  "sums, products, quotients and squares are the narrowest enclosures of exact fractions"(c) {
    const one = c.ONE, list = [...hostileIntervals(one)];
    list.forEach((a, i) => {
      same(c.neg(a), -a.hi, -a.lo, "neg");
      same(c.half(a), under(a.lo, 2n), over(a.hi, 2n), "half");
      same(c.quarter(a), under(a.lo, 4n), over(a.hi, 4n), "quarter");
      same(c.positive(a), largest([a.lo, 0n]), largest([a.hi, 0n]), "positive");
      for (const whole of [-3n, -1n, 0n, 1n, 2n]) same(c.times(a, whole), smallest([a.lo * whole, a.hi * whole]), largest([a.lo * whole, a.hi * whole]), `times ${whole}`);
      const powers = [a.lo * a.lo, a.hi * a.hi];
      same(c.square(a), under(a.lo < 0n && a.hi > 0n ? 0n : smallest(powers), one), over(largest(powers), one), "square");
      for (let j = 0; j < list.length; j += 1 + (i % 3)) {
        const b = list[j], products = [a.lo, a.hi].flatMap((x) => [x * b.lo, x * b.hi]);
        same(c.add(a, b), a.lo + b.lo, a.hi + b.hi, "add");
        same(c.sub(a, b), a.lo - b.hi, a.hi - b.lo, "sub");
        same(c.larger(a, b), largest([a.lo, b.lo]), largest([a.hi, b.hi]), "larger");
        same(c.smaller(a, b), smallest([a.lo, b.lo]), smallest([a.hi, b.hi]), "smaller");
        same(c.mul(a, b), under(smallest(products), one), over(largest(products), one), "mul");
        if (b.lo <= 0n && b.hi >= 0n) { refuses(c.NotProved, () => c.div(a, b), "div by 0"); continue; }
        const quotients = [a.lo, a.hi].flatMap((x) => [b.lo, b.hi].map((y) => [x * one, y]));
        same(c.div(a, b), smallest(quotients.map(([n, d]) => under(n, d))), largest(quotients.map(([n, d]) => over(n, d))), "div");
      }
    });
    for (const n of [-7n, -6n, -1n, 0n, 1n, 6n, 7n]) for (const d of [-3n, -2n, 2n, 3n]) { equal(c.floorDiv(n, d), under(n, d), `floorDiv(${n}, ${d})`); equal(c.ceilDiv(n, d), over(n, d), `ceilDiv(${n}, ${d})`); }
    for (const n of [-7n, -one, -one - 1n, 0n, 1n, one, one + 1n]) { equal(c.floorShift(n), under(n, one), "floorShift"); equal(c.ceilShift(n), over(n, one), "ceilShift"); }
  },
  "square roots are the narrowest enclosures"(c) {
    const next = drawn(11), low = (n) => { const r = c.floorRoot(n); if (!(r >= 0n && r * r <= n && (r + 1n) * (r + 1n) > n)) throw new Error(`floorRoot(${n}) is ${r}`); return r; };
    for (let n = 0n; n < 300n; n++) low(n);
    for (const bits of [10n, 31n, 32n, 33n, 64n, 200n, 256n, 511n, 512n, 513n]) for (const n of [1n << bits, (1n << bits) - 1n, (1n << bits) + 1n, next(1n << bits)]) low(n);
    for (const a of hostileIntervals(c.ONE)) {
      const found = c.root(a), top = largest([a.hi, 0n]) * c.ONE, bottom = largest([a.lo, 0n]) * c.ONE;
      if (!(found.lo >= 0n && found.lo ** 2n <= bottom && (found.lo + 1n) ** 2n > bottom)) throw new Error("root, from below");
      if (!(found.hi ** 2n >= top && (found.hi === 0n || (found.hi - 1n) ** 2n < top))) throw new Error("root, from above");
    }
  },
  "sums of many, and products of lists"(c) {
    const [a, b, d] = [[-3n, 2n], [1n, 1n], [-1n, 5n]].map(([lo, hi]) => ({ lo: lo * c.ONE, hi: hi * c.ONE }));
    same(c.sum([a, b, d]), -3n * c.ONE, 8n * c.ONE, "sum");
    same(c.sum([]), 0n, 0n, "the empty sum");
    same(c.dot([a, b], [d, a]), (-15n - 3n) * c.ONE, (10n + 2n) * c.ONE, "dot");
    equal(c.least(2n, -3n), -3n, "least");
    equal(c.most(2n, -3n), 2n, "most");
  },
  "the least value of a parabola on [0, 1]"(c) {
    const next = drawn(5), cases = [[0n, 0n, -4n], [0n, 0n, -3n], [5n, 5n, 0n], [5n, 9n, -4n], [9n, 5n, -4n], [5n, 9n, -5n], [-5n, 2n, 100n], [7n, 3n, -5n]];
    for (let i = 0; i < 60; i++) cases.push([next(4000n) - 2000n, next(4000n) - 2000n, next(16000n) - 12000n]);
    for (const [left, right, bend] of cases) {
      const found = c.lowest(left, right, bend), grid = 2048n;
      let lowest = null;
      for (let s = 0n; s <= grid; s++) {
        const v = (grid - s) * grid * left + s * grid * right + s * (grid - s) * bend;
        if (lowest === null || v < lowest) lowest = v;
      }
      if (found * grid * grid > lowest) throw new Error(`lowest(${left}, ${right}, ${bend}) is ${found}, above a value`);
      if (found < under(lowest, grid * grid) - 1n) throw new Error(`lowest(${left}, ${right}, ${bend}) is ${found}, far below every value`);
    }
    equal(c.lowest(5n, 9n, -4n), 5n, "lowest where it just does not bend below its end");
    equal(c.lowest(0n, 0n, -4n), -1n, "lowest at an exact fraction");
    equal(c.lowest(0n, 0n, -5n), -2n, "lowest, rounded down");
  },
  "who is paid, who volunteers, and which leaves are empty"(c) {
    const of = (v) => c.exact(v), width = (lo, hi) => ({ lo: of(lo).lo, hi: of(hi).hi });
    const judge = ({ alpha = [0.25, 0.75], theta = [1, 1], a = 0, low = 0.5, high = 1, paid = [], volunteer = [], near = [0, 0], far = [2, 2], wide = null }) =>
      c.classify({ count: 2, alpha: wide ?? alpha.map(of), theta: theta.map((v) => (typeof v === "number" ? of(v) : v)), a: typeof a === "number" ? of(a) : a }, { low, high, paid, volunteer }, near.map((v) => of(v).lo), far.map((v) => of(v).hi));
    const told = (found) => (found === null ? "empty" : ["paid", "volunteer", "wide"].map((name) => found[name].map(Number).join("")).join(" "));
    const table = [
      [{}, "00 00 00"], [{ paid: [0] }, "10 00 00"], [{ volunteer: [1] }, "00 01 00"],
      [{ near: [1.5, 0] }, "00 10 00"], [{ near: [1, 0] }, "00 00 00"], [{ near: [1, 0], a: 0.5 }, "00 10 00"], [{ near: [1.5, 0], paid: [0] }, "empty"],
      [{ far: [0.5, 2] }, "10 00 00"], [{ far: [0.5, 2], volunteer: [0] }, "00 10 00"], [{ far: [0.5, 2], a: 0.001 }, "00 00 00"], [{ far: [0.25, 2], a: 0.25 }, "10 00 00"],
      [{ far: [0.25, 2], a: 0.26 }, "00 00 00"], [{ near: [1.5, 0], far: [0.5, 2] }, "empty"],
      [{ low: 0.25, high: 0.5 }, "01 00 01"], [{ low: 0.25, high: 0.75 }, "00 00 00"], [{ low: 0.25, high: 0.5, volunteer: [1] }, "empty"],
      [{ low: 0.25, high: 0.5, near: [0, 1.5] }, "empty"], [{ alpha: [0.5, 0.5], low: 0.25, high: 0.75, volunteer: [0, 1] }, "empty"],
      [{ alpha: [0.25, 0.5], low: 0.25, high: 0.75, volunteer: [0, 1] }, "00 11 00"], [{ low: 0, far: [0, 2], a: 0.5 }, "00 00 00"], [{ low: 0, far: [0, 2] }, "10 00 00"],
      [{ theta: [width(1, 2), 1], near: [1.5, 0] }, "00 00 00"], [{ theta: [width(1, 2), 1], far: [0.75, 2] }, "00 00 00"],
      [{ wide: [width(0.4, 0.6), of(0.1)], low: 0.25, high: 0.5 }, "00 00 00"], [{ wide: [width(0.4, 0.6), of(0.1)], low: 0.25, high: 0.5, volunteer: [0] }, "00 10 00"],
      [{ a: { lo: 0n, hi: c.ONE }, low: 0.5, far: [0.25, 2] }, "00 00 00"], [{ low: 0.25, high: 0.5, near: [0, 1.5], volunteer: [1] }, "empty"],
    ];
    for (const [given, expected] of table) equal(told(judge(given)), expected, JSON.stringify(given, (_, v) => (typeof v === "bigint" ? String(v) : v)));
    const found = judge({ low: 0.5, a: 0.5, far: [0.25, 0.5] }).ceiling;
    equal(found[0], of(0.75).hi, "the largest distance with the noise of sampling");
    equal(judge({ low: 0, a: 0.5 }).ceiling[0], null, "the largest distance where totals begin at 0");
    equal(judge({ low: 0 }).ceiling[0], of(2).hi, "the largest distance without sampling");
  },
  "numbers, arrays and words are read as the format says"(c) {
    equal(c.numberOf({ number: "-inf" }, "x"), -Infinity, "-inf");
    equal(c.numberOf({ number: "inf" }, "x"), Infinity, "inf");
    for (const bad of ["1", null, true, [1], { number: "1" }, { number: 3 }, { number: "inf", more: 1 }, { other: "inf" }, { number: "toString" }, {}]) refuses(c.BadFile, () => c.numberOf(bad, "x"), JSON.stringify(bad));
    for (const bad of [{ number: "inf" }, { number: "nan" }, "1"]) refuses(c.BadFile, () => c.finite(bad, "x"), `finite ${JSON.stringify(bad)}`);
    equal(c.finite(-3, "x"), -3, "finite");
    equal(c.notNegative(0, "x"), 0, "0 is not negative");
    equal(c.notNegative({ number: "inf" }, "x", true), Infinity, "infinity where it is allowed");
    for (const bad of [{ number: "inf" }, { number: "nan" }, -1e-300, { number: "-inf" }]) refuses(c.BadFile, () => c.notNegative(bad, "x"), `notNegative ${JSON.stringify(bad)}`);
    for (const bad of [-1, { number: "nan" }]) refuses(c.BadFile, () => c.notNegative(bad, "x", true), `notNegative ${JSON.stringify(bad)}`);
    equal(c.flag(true, "x"), true, "true");
    for (const bad of [1, "true", null]) refuses(c.BadFile, () => c.flag(bad, "x"), `flag ${bad}`);
    equal(c.word("a", ["a", "b"], "x"), "a", "word");
    for (const bad of ["c", 1, null, ["a"]]) refuses(c.BadFile, () => c.word(bad, ["a", "b"], "x"), `word ${bad}`);
    const array = (array, shape, dtype = "float64") => ({ array, shape, dtype });
    equal(c.arrayOf([1, 2], "x").join(), "1,2", "a list");
    equal(c.arrayOf(array([[1, 2], [3, 4], [5, 6]], [3, 2]), "x", 2).join(), "1,2,3,4,5,6", "rows");
    equal(c.arrayOf(array([[1, 2]], [1, 2]), "x", 2).shape.join(), "1,2", "a shape");
    equal(c.arrayOf(array([], [0, 5]), "x", 2).shape.join(), "0,5", "the shape of nothing");
    equal(c.arrayOf(array([0.1], [1], "float32"), "x")[0], Math.fround(0.1), "float32");
    equal(c.arrayOf(array([0.1], [1]), "x")[0], 0.1, "float64");
    equal(c.arrayOf([], "x").length, 0, "an empty list");
    const wrong = [
      [array([1, 2], [3])], [array([1, 2], [2, 1])], [array([[1], [2, 3]], [2, 2]), 2], [array([1, 2], [2]), 2], [array([[1, 2]], [2]), 1], [array([1.5], [1], "int64")],
      [array([2 ** 53], [1], "int8")], [array([1], [1], "object")], [array(7, [1])], [array([1], 1)], [{ array: [1], dtype: "float64" }], ["12"], [null], [array([[1, 2], [3, 4]], [2, 3]), 2],
      [array([[1, 2], [3, 4]], [4, 2]), 2], [array([], [3])], [array([[], []], [2, 1]), 2],
    ];
    for (const [bad, dimensions] of wrong) refuses(c.BadFile, () => c.arrayOf(bad, "x", dimensions), JSON.stringify(bad));
    equal(c.vector([0, 1], 2, "x", c.isShare).join(), "0,1", "shares");
    for (const [bad, allowed] of [[[0], c.isShare], [[0, 1, 1], c.isShare], [[0, 1.1], c.isShare], [[-1e-9, 1], c.isShare], [[{ number: "nan" }, 1], c.isShare], [[{ number: "inf" }, 1], c.isAmount], [[-1, 1], c.isAmount], [[0, 1], c.isPositive], [[{ number: "inf" }, 1], c.isPositive]]) refuses(c.BadFile, () => c.vector(bad, 2, "x", allowed), `vector ${JSON.stringify(bad)}`);
    equal(c.vector([0, 5], 2, "x", c.isAmount).join(), "0,5", "amounts");
    for (const bad of [null, 7, [1], "a"]) refuses(c.BadFile, () => c.field(bad, "length", "x"), `field ${bad}`);
    refuses(c.BadFile, () => c.field({}, "toString", "x"), "a field that every object has");
    equal(c.field({ a: 1 }, "a", "x"), 1, "field");
    equal(c.optional({ a: 1 }, "a", "x"), 1, "optional");
    equal(c.optional({}, "a", "x"), null, "optional, missing");
    equal(c.shown("a\u202eb\u0007"), "a?b?", "shown");
  },
  "sparse vectors and their parts have to fit"(c) {
    equal(c.endsOf([0, 2, 2, 5], 4, 5, "x").join(), "0,2,2,5", "ends");
    equal(c.endsOf([], 0, 0, "x").length, 0, "no ends");
    for (const [bad, count, length] of [[[0, 2], 2, 3], [[2, 1, 3], 3, 3], [[-1, 3], 2, 3], [[1.5, 3], 2, 3], [[1, 3], 3, 3], [[4, 3], 2, 3], [[], 0, 1]]) refuses(c.BadFile, () => c.endsOf(bad, count, length, "x"), `ends ${bad}`);
    const record = { p_clients: [0, 2, 1], p_values: [1, -2, 3], p_ends: [2, 3] }, parts = c.sparseOf(record, "p", 2, "p_ends");
    equal(parts.map(({ who, what }) => `${who}:${what}`).join(" "), "0,2:1,-2 1:3", "sparse vectors");
    refuses(c.BadFile, () => c.sparseOf({ ...record, p_clients: [0, 2] }, "p", 2, "p_ends"), "lists of different lengths");
    equal(c.dense({ who: [2, 0], what: [5, -1] }, 3, "x").map((v) => v.lo / c.ONE).join(), "-1,0,5", "dense");
    for (const bad of [{ who: [3], what: [1] }, { who: [-1], what: [1] }, { who: [0, 0], what: [1, 1] }, { who: [0.5], what: [1] }, { who: [0], what: [NaN] }, { who: [0], what: [Infinity] }]) refuses(c.NotProved, () => c.dense(bad, 3, "x"), `dense ${JSON.stringify(bad)}`);
    const free = { budget: Infinity, max_loss: Infinity }, bound = { budget: 1, max_loss: 1 }, look = (goal, values) => c.checkMultipliers(goal, [0, ...values], values, "x");
    look(bound, [0, 0, 0]);
    look(bound, [1, 2, 3]);
    look(free, [1, 0, 0]);
    for (const [goal, values] of [[bound, [-1, 0, 0]], [bound, [0, -1, 0]], [bound, [0, 0, -1]], [{ ...bound, budget: Infinity }, [0, 1, 0]], [{ ...bound, max_loss: Infinity }, [0, 0, 1]], [bound, [0, NaN, 0]]]) refuses(c.NotProved, () => look(goal, values), `multipliers ${values}`);
    refuses(c.NotProved, () => c.checkMultipliers(bound, [Infinity, 1, 1, 1], [1, 1, 1], "x"), "an infinite number");
    const knots = { knot_numbers: { array: [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], dtype: "float64", shape: [2, 5] }, centre_is_point: [0, 1], ...record };
    equal(JSON.stringify(c.readKnots(knots, [["p", "p_ends"]])), '[{"numbers":[1,2,3,4,5],"isPoint":false,"p":{"who":[0,2],"what":[1,-2]}},{"numbers":[6,7,8,9,10],"isPoint":true,"p":{"who":[1],"what":[3]}}]', "knots");
    for (const bad of [{ ...knots, centre_is_point: [0] }, { ...knots, knot_numbers: [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]] }]) refuses(c.BadFile, () => c.readKnots(bad, [["p", "p_ends"]]), "knots");
  },
  "inner products of no vectors are refused, and a shift is found for others"(c) {
    const matrix = (rows) => rows.map((row) => row.map(c.exact));
    for (const [rows, shift, expected] of [[[[1, 0], [0, 1]], 0n, true], [[[1, 2], [2, 1]], 0n, false], [[[1, 1], [1, 1]], 0n, false], [[[1, 1], [1, 1]], 1n << 100n, true], [[[1, -0.5, 0.25], [-0.5, 1, 0.5], [0.25, 0.5, 1]], 0n, true], [[[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]], 0n, false], [[[0, 0], [0, 1]], 0n, false], [[[-1]], 0n, false]]) equal(c.eliminates(matrix(rows), shift), expected, `eliminates ${JSON.stringify(rows)}`);
    equal(c.eliminates([[{ lo: -1n, hi: c.ONE }]], 0n), false, "a diagonal that may be negative");
    const found = c.defectOf(matrix([[1, 1], [1, 1]]));
    if (!(found > 0n && found <= c.ONE >> 100n)) throw new Error("the defect of a singular matrix");
    const off = c.defectOf(matrix([[1, 1 + 2 ** -40], [1 + 2 ** -40, 1]]));
    if (!(off >= c.ONE >> 40n && off <= c.ONE >> 30n)) throw new Error("the defect of a matrix that is a little off");
    refuses(c.NotProved, () => c.defectOf(matrix([[1, 2], [2, 1]])), "an indefinite matrix");
    c.checkComplement([1, 0.5, 0.5, 1], [0, -0.5, -0.5, 0], 2);
    refuses(c.BadFile, () => c.checkComplement([1, 0.5, 0.5, 1], [0, -0.5, -0.4, 0], 2), "an asymmetric complement");
    refuses(c.BadFile, () => c.checkComplement([1, 0.5, 0.5, 1], [0, -0.4, -0.4, 0], 2), "another complement");
  },
  "the variance of a sample, from norms and counts"(c) {
    const of = (counts, norms, scale) => c.variancesOf({ keep: counts.map((_, i) => i), counts }, norms.map((v) => c.exact(v)), c.exact(scale));
    const [one, few, many, none] = of([1, 2, 5, 5], [0.5, 0.75, 0.5, 2], 1);
    same(one, c.ONE, c.ONE, "one sample");
    same(few, c.ONE / 2n, c.ONE / 2n, "two samples");
    same(many, under(5n * c.ONE, 8n), over(5n * c.ONE, 8n), "five samples");
    same(none, 0n, 0n, "a norm above 1");
    same(of([2], [0.25], 1)[0], c.ONE, c.ONE, "at most 1");
    same(of([2, 3], [0.5, 0.5], 0)[0], under(5n * c.ONE, 8n), over(5n * c.ONE, 8n), "alike embeddings share their counts");
    refuses(c.Unable, () => of([2, 3], [0.5, 0.5], 1e-20), "embeddings that are nearly alike");
  },
  "gains are compared with a billionth of the stakes, at the ends that are safe"(c) {
    const of = (lo, hi = lo) => ({ lo: c.exact(lo).lo, hi: c.exact(hi).hi });
    const gains = ({ slope = of(0), cap = of(1), x = of(0.5), cost = of(1), p = of(0), square = of(0) }) => c.firstWhoGains({ costs: [cost], lambda: of(1) }, { slope: [slope], cap: [cap], x: [x], p: [p], squares: [square] });
    for (const [given, expected] of [
      [{}, -1], [{ slope: of(1e-9) }, -1], [{ slope: of(4e-9) }, 0], [{ slope: of(-1e-9) }, -1], [{ slope: of(-4e-9) }, 0], [{ slope: of(4e-9), x: of(1) }, -1], [{ slope: of(-4e-9), x: of(0) }, -1],
      [{ slope: of(0, 4e-9) }, 0], [{ slope: of(-4e-9, 0) }, 0], [{ slope: of(4e-9), p: of(3) }, -1], [{ slope: of(4e-9), square: of(3) }, -1], [{ slope: of(4e-9), cost: of(3) }, -1],
      [{ slope: of(4e-9), cost: of(1, 9) }, 0], [{ slope: of(4e-9), cap: of(0.5) }, -1], [{ slope: of(-4e-9), x: of(0, 1) }, 0], [{ slope: of(2 ** -32), x: of(0), cost: of(2 ** -32 * 1e9) }, -1],
    ]) equal(gains(given), expected, "firstWhoGains");
  },
};

/** What fails first, or null. */
export function failure(text) {
  const c = inside(text);
  for (const [name, test] of Object.entries(TESTS)) {
    try { test(c); } catch (error) { return `${name}: ${error.message}`; }
  }
  return null;
}

/** Why an honest file is not what it was: its report, its numbers at 256 binary digits, and the bounds with 200. */
export function changed(text, file, { verdicts, numbers }) {
  const { heard, report } = listen(text, file);
  const found = report.lines.map((line) => `${line.what}: ${line.verdict}`).join("; ");
  if (found !== verdicts) return `it says ${found}`;
  if (digest(heard) !== numbers) return "numbers that verdicts depend on differ in some digit";
  return tooGood(listen(text, file, 200).heard, 200, heard, 256);
}

/** Why a forgery is not refused as it should be, or a harmless change not accepted. */
export function slipped(checker, { text, stillTrue, pattern }) {
  const report = checker.check(text), accepted = report.verdict === "proved" || report.verdict === "not checked";
  if (accepted !== stillTrue) return `it is ${report.verdict}`;
  const said = report.lines.filter((line) => line.verdict === "refused").map((line) => `${line.what}: ${line.said}`).join("; ");
  return new RegExp(pattern).test(said) ? null : `it says ${said}`;
}

if (process.argv[1]?.endsWith("judging/second_checker.mjs")) {
  const { readFileSync } = await import("node:fs");
  const text = audible(readFileSync(process.argv[2], "utf8")), files = JSON.parse(readFileSync(0, "utf8")), out = { failure: failure(text), files: {} };
  for (const [name, file] of Object.entries(files)) {
    const { heard, report } = listen(text, file);
    out.files[name] = {
      verdicts: report.lines.map((line) => `${line.what}: ${line.verdict}`).join("; "), numbers: digest(heard), heard: heard.length,
      tooGood: tooGood(listen(text, file, 200).heard, 200, heard, 256),
    };
  }
  console.log(JSON.stringify(out));
}
