// A second checker of saved solutions, written from docs/theory/certificate_format.md and from nothing else. It has no dependencies:
//
//     node check.mjs solution.json
//
// Exit codes: 0 everything the file claims is proved; 1 something is refused; 2 the file cannot be read; 3 what was checked holds, but
// some claims were not checked. Inside a page: check(text, progress) returns the same report as a plain value.
//
// Arithmetic: a number is an interval [lo, hi] of whole multiples of 2^-256 (BigInt). Sums are exact; products, quotients and roots are
// rounded outward by at most one multiple. Nothing overflows, and nothing is assumed about the rounding of the machine.

const BITS = 256n, ONE = 1n << BITS;
const MOST_CLIENTS = 200, MOST_NODES = 100_000, MOST_NUMBERS = 4_000_000, MOST_CHARACTERS = 100_000_000;

/** The file breaks the format: nothing in it is believed. */
export class BadFile extends Error {}
/** The file is readable, but this checker does not know how to check it. */
class Unable extends Error {}
/** The certificate does not prove what it claims. */
class NotProved extends Error {}

// ------------------------------------------------------------------ intervals

const interval = (lo, hi) => ({ lo, hi });
const point = (n) => ({ lo: n, hi: n });
const ZERO = point(0n), UNIT = point(ONE);
const floorDiv = (n, d) => { const q = n / d; return q * d !== n && (n < 0n) !== (d < 0n) ? q - 1n : q; };
const ceilDiv = (n, d) => -floorDiv(-n, d);
const floorShift = (n) => n >> BITS, ceilShift = (n) => -(-n >> BITS);
const least = (a, b) => (a < b ? a : b), most = (a, b) => (a > b ? a : b);

/** An enclosure of a binary64 number: the number itself unless it has digits below 2^-256. */
function exact(value) {
  if (!Number.isFinite(value)) throw new Error("not finite");
  if (value === 0) return ZERO;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const bits = view.getBigUint64(0), exponent = (bits >> 52n) & 2047n;
  let digits = bits & ((1n << 52n) - 1n);
  if (exponent > 0n) digits |= 1n << 52n;
  const shift = (exponent > 0n ? exponent : 1n) - 1075n + BITS;
  if (value < 0) digits = -digits;
  return shift >= 0n ? point(digits << shift) : interval(digits >> -shift, -(-digits >> -shift));
}

const add = (a, b) => interval(a.lo + b.lo, a.hi + b.hi);
const sub = (a, b) => interval(a.lo - b.hi, a.hi - b.lo);
const neg = (a) => interval(-a.hi, -a.lo);
const times = (a, whole) => (whole >= 0n ? interval(a.lo * whole, a.hi * whole) : interval(a.hi * whole, a.lo * whole));
const half = (a) => interval(a.lo >> 1n, -(-a.hi >> 1n));
const quarter = (a) => interval(a.lo >> 2n, -(-a.hi >> 2n));

function mul(a, b) {
  if (a.lo >= 0n && b.lo >= 0n) return interval(floorShift(a.lo * b.lo), ceilShift(a.hi * b.hi));
  const p = a.lo * b.lo, q = a.lo * b.hi, r = a.hi * b.lo, s = a.hi * b.hi;
  return interval(floorShift(least(least(p, q), least(r, s))), ceilShift(most(most(p, q), most(r, s))));
}

function square(a) {
  if (a.lo < 0n && a.hi > 0n) { const far = most(-a.lo, a.hi); return interval(0n, ceilShift(far * far)); }
  const p = a.lo * a.lo, q = a.hi * a.hi;
  return interval(floorShift(least(p, q)), ceilShift(most(p, q)));
}

function div(a, b) {
  if (b.lo <= 0n && b.hi >= 0n) throw new NotProved("a divisor may be 0");
  const ends = [a.lo, a.hi].flatMap((n) => [b.lo, b.hi].map((d) => [n << BITS, d]));
  return interval(ends.map(([n, d]) => floorDiv(n, d)).reduce(least), ends.map(([n, d]) => ceilDiv(n, d)).reduce(most));
}

function floorRoot(n) {
  if (n < 2n) return n;
  let x = 1n << BigInt((n.toString(16).length * 4 + 3) >> 1);
  for (;;) {
    const y = (x + n / x) >> 1n;
    if (y >= x) return x;
    x = y;
  }
}

/** The root of a number that is known not to be negative. */
function root(a) {
  const low = floorRoot(most(a.lo, 0n) << BITS), top = most(a.hi, 0n) << BITS, high = floorRoot(top);
  return interval(low, high * high === top ? high : high + 1n);
}

const positive = (a) => interval(most(a.lo, 0n), most(a.hi, 0n));
const larger = (a, b) => interval(most(a.lo, b.lo), most(a.hi, b.hi));
const smaller = (a, b) => interval(least(a.lo, b.lo), least(a.hi, b.hi));
const sum = (many) => many.reduce(add, ZERO);
const dot = (a, b) => sum(a.map((x, i) => mul(x, b[i])));
const approximate = (n) => Number(n) / 2 ** 256;
const middle = (a) => approximate((a.lo + a.hi) >> 1n);
const words = (value, digits = 9) => String(Number(value.toPrecision(digits)));
/** A bound that stays true when it is written down with few digits. */
const fewer = (n) => { const x = approximate(n), text = words(x); return Number(text) <= x ? text : words(x - Math.abs(x) * 1e-8); };

// ------------------------------------------------------------------ reading

/** Text of a file as it may be shown: short, without control or direction characters. */
const shown = (value) => {
  const text = String(value).replace(/[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu, "?");
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
};

function field(record, name, where) {
  if (record === null || typeof record !== "object" || Array.isArray(record)) throw new BadFile(`${where} is no record`);
  if (!Object.hasOwn(record, name)) throw new BadFile(`${where} has no field "${name}"`);
  return record[name];
}

const optional = (record, name, where) => (Object.hasOwn(record, name) ? field(record, name, where) : null);

function numberOf(value, where) {
  if (typeof value === "number") return value;
  if (value !== null && typeof value === "object" && Object.keys(value).length === 1 && Object.hasOwn(value, "number")) {
    const known = { inf: Infinity, "-inf": -Infinity, nan: NaN };
    if (typeof value.number === "string" && Object.hasOwn(known, value.number)) return known[value.number];
  }
  throw new BadFile(`${where} is not a number`);
}

function finite(value, where) {
  const read = numberOf(value, where);
  if (!Number.isFinite(read)) throw new BadFile(`${where} is ${read}, not a finite number`);
  return read;
}

function notNegative(value, where, infinite = false) {
  const read = numberOf(value, where);
  if (!(read >= 0) || (!infinite && read === Infinity)) throw new BadFile(`${where} is ${read}, which is not allowed`);
  return read;
}

function flag(value, where) {
  if (typeof value !== "boolean") throw new BadFile(`${where} is neither true nor false`);
  return value;
}

function word(value, among, where) {
  if (typeof value !== "string" || !among.includes(value)) throw new BadFile(`${where} is "${shown(value)}", which is not known`);
  return value;
}

function arrayOf(value, where, dimensions = 1) {
  let content = value, shape = null, type = "float64";
  if (!Array.isArray(value)) {
    content = field(value, "array", where);
    shape = field(value, "shape", where);
    type = word(field(value, "dtype", where), ["float64", "float32", "int64", "int8"], `the type of ${where}`);
    if (!Array.isArray(content) || !Array.isArray(shape)) throw new BadFile(`${where} is no array`);
  }
  const out = [], found = [];
  const read = (part, depth) => {
    if (!Array.isArray(part)) throw new BadFile(`${where} does not have ${dimensions} dimensions`);
    if (found.length === depth) found.push(part.length);
    else if (found[depth] !== part.length) throw new BadFile(`${where} has rows of different lengths`);
    if (out.length + part.length > MOST_NUMBERS) throw new BadFile(`${where} holds more than ${MOST_NUMBERS} numbers`);
    for (const item of part) {
      if (depth + 1 < dimensions) { read(item, depth + 1); continue; }
      const number = numberOf(item, `an entry of ${where}`);
      if (type.startsWith("int") && !Number.isSafeInteger(number)) throw new BadFile(`${where} holds ${number}, not a whole number`);
      out.push(type === "float32" ? Math.fround(number) : number);
    }
  };
  read(content, 0);
  if (shape !== null) {
    const empty = out.length === 0 && shape.some((n) => n === 0);
    if (shape.length !== dimensions || (!empty && shape.some((n, i) => n !== found[i]))) throw new BadFile(`${where} does not have the shape it states`);
  }
  out.shape = out.length === 0 && shape !== null ? shape : found;
  return out;
}

function vector(value, count, where, allowed) {
  const read = arrayOf(value, where);
  if (read.length !== count) throw new BadFile(`${where} holds ${read.length} numbers, not ${count}`);
  const bad = read.findIndex((v) => !allowed(v));
  if (bad >= 0) throw new BadFile(`${where} holds ${read[bad]} for client ${bad}, which is not allowed`);
  return read;
}

const isShare = (v) => v >= 0 && v <= 1, isAmount = (v) => v >= 0 && v < Infinity, isPositive = (v) => v > 0 && v < Infinity;

function readGame(record) {
  const where = "the game", stored = field(record, "embeddings", where), game = { where };
  const features = field(stored, "features", "the embeddings");
  if (features !== null) {
    const read = arrayOf(features, "the features", 2);
    [game.count, game.width] = read.shape;
    game.rows = Array.from({ length: game.count }, (_, i) => read.slice(i * game.width, (i + 1) * game.width));
  } else {
    const gram = arrayOf(field(stored, "gram", "the embeddings"), "the inner products", 2);
    game.count = gram.shape[0];
    if (gram.shape[1] !== game.count) throw new BadFile("the inner products are no square");
    const complement = field(stored, "complement", "the embeddings");
    game.products = complement === null ? gram : arrayOf(complement, "the complement", 2).map((v) => -v);
    if (game.products.length !== gram.length) throw new BadFile("the complement does not fit the inner products");
    game.norms = Array.from({ length: game.count }, (_, i) => gram[i * game.count + i]);
    checkComplement(gram, game.products, game.count);
  }
  const numbers = game.rows ? game.rows.flat() : game.products;
  if (!numbers.every(Number.isFinite)) throw new BadFile("the embeddings hold numbers that are not finite");
  if (!(game.count >= 1 && game.count <= MOST_CLIENTS)) throw new Unable(`this checker takes up to ${MOST_CLIENTS} clients, not ${game.count}`);
  const counts = optional(stored, "sample_counts", "the embeddings");
  game.sizes = vector(field(record, "sizes", where), game.count, "the sizes", isPositive);
  game.counts = counts === null ? game.sizes : vector(counts, game.count, "the sample counts", (v) => Number.isSafeInteger(v) && v > 0);
  game.removed = arrayOf(field(record, "removed", where), "the removed clients").sort((a, b) => a - b);
  game.removed.forEach((k, i) => {
    if (!Number.isInteger(k) || k < 0 || k >= game.count || k === game.removed[i - 1]) throw new BadFile(`the removed clients hold ${k}`);
  });
  game.keep = game.sizes.map((_, i) => i).filter((i) => !game.removed.includes(i));
  game.costs = vector(field(record, "costs", where), game.keep.length, "the costs", isPositive);
  for (const name of ["lambda_v", "lambda_s", "lambda_q", "loss_constant", "sampling_constant"]) {
    game[name] = notNegative(name === "sampling_constant" ? optional(record, name, where) ?? 0 : field(record, name, where), name);
  }
  if (!(game.lambda_q > 0 && game.loss_constant > 0)) throw new BadFile("lambda_q and loss_constant must be above 0");
  readLoss(record, game);
  const names = optional(record, "names", where);
  for (const given of [names, optional(stored, "names", "the embeddings")]) {
    if (given === null) continue;
    if (!Array.isArray(given) || given.length !== game.count) throw new BadFile("there is not one name per client");
    if (given.some((name) => /[\p{Cc}\p{Cf}]/u.test(String(name)))) throw new BadFile("a name holds control characters");
  }
  game.who = (k) => (names !== null ? `"${shown(names[game.keep[k]])}"` : String(game.keep[k]));
  return game;
}

function checkComplement(gram, products, count) {
  const unit = Math.max(1, ...gram.map(Math.abs)), at = (x, i, j) => x[i * count + j];
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < count; j++) {
      if (at(products, i, j) !== at(products, j, i)) throw new BadFile("the inner products are not symmetric");
      const [one, two] = [gram, products].map((x) => at(x, i, i) + at(x, j, j) - 2 * at(x, i, j));
      if (!(Math.abs(one - two) <= 4e-12 * unit)) throw new BadFile("the inner products and their complement contradict each other");
    }
  }
}

function readLoss(record, game) {
  const own = optional(record, "server_loss", game.where);
  game.paper = own === null;
  if (own === null) {
    game.targets = [{ kind: "remaining", values: [] }, { kind: "original", values: [] }];
    game.weights = [game.lambda_v * game.loss_constant, game.lambda_s * game.loss_constant];
    game.sampling = false;
    return;
  }
  const targets = field(own, "targets", "the loss");
  if (!Array.isArray(targets) || targets.length === 0) throw new BadFile("the loss has no targets");
  game.targets = targets.map((target) => {
    const kind = word(field(target, "kind", "a target"), ["remaining", "original", "mixture", "point"], "the kind of a target");
    const values = field(target, "values", "a target"), needed = { mixture: game.count, point: game.width }[kind] ?? 0;
    return { kind, values: vector(values, needed, "a target", Number.isFinite) };
  });
  game.weights = vector(field(own, "weights", "the loss"), targets.length, "the weights of the loss", isAmount);
  game.sampling = flag(field(own, "sampling", "the loss"), "sampling");
  const total = (values) => values.reduce((a, b) => a + b, 0);
  if (game.targets.some((t) => t.kind === "mixture" && !(Math.abs(total(t.values) - 1) <= 1e-9))) throw new BadFile("a mixture does not sum to 1");
}

function readGoal(record) {
  const goal = {};
  for (const name of ["budget", "payment_weight", "loss_weight", "max_loss", "min_total"]) {
    goal[name] = notNegative(field(record, name, "the goal"), name, name === "budget" || name === "max_loss");
  }
  goal.finite_sample = flag(field(record, "finite_sample", "the goal"), "finite_sample");
  return goal;
}

const STATES = ["CERTIFIED", "CONVERGED", "GAP_OPEN", "TIME_LIMIT", "INTERRUPTED", "MAX_ITERATIONS", "CYCLED", "NO_EQUILIBRIUM", "FAILED"];

function readSolution(text) {
  if (typeof text !== "string") throw new BadFile("there is no text to read");
  if (text.length > MOST_CHARACTERS) throw new BadFile("the file is too long for this checker");
  if (text.startsWith("PK")) throw new BadFile("this is an .npz file; save the solution as .json");
  let record;
  try { record = JSON.parse(text); } catch { throw new BadFile("this is no JSON; the file may end too early"); }
  if (record === null || typeof record !== "object" || record.format !== "stackfu") throw new BadFile("this is not a stackfu file");
  const version = field(record, "version", "the file");
  if (!Number.isInteger(version) || version < 1) throw new BadFile(`the version "${shown(version)}" is none`);
  if (version > 3) throw new BadFile(`the file has version ${version}; this checker reads up to 3`);
  if (record.kind !== "solution") throw new BadFile(`this checker reads solutions, and this is "${shown(record.kind)}"`);
  const stated = field(record, "equilibrium", "the solution"), where = "the equilibrium";
  const game = readGame(field(stated, "game", where)), count = game.keep.length;
  const goal = readGoal(field(record, "goal", "the solution"));
  const eq = {
    payments: vector(field(stated, "payments", where), count, "the payments", isAmount),
    x: vector(field(stated, "participation", where), count, "the participation", isShare),
    status: word(field(stated, "status", where), STATES, "the status of the equilibrium"),
    uniqueness: word(field(stated, "uniqueness", where), ["UNIQUE", "MULTIPLE", "CONTINUUM", "UNKNOWN"], "the uniqueness"),
    regret: numberOf(field(stated, "regret", where), "the regret"),
    residual: numberOf(field(stated, "residual", where), "the residual"),
    face: field(stated, "face", where),
  };
  if (!eq.x.some((v) => v > 0)) throw new BadFile("nobody takes part");
  const nothing = new Array(count).fill(0), everything = new Array(count).fill(1);
  const given = (name, fallback, allowed) => {
    const value = optional(stated, name, where);
    return value === null ? fallback : vector(value, count, `the ${name} of the equilibrium`, allowed);
  };
  eq.caps = given("caps", everything, isShare);
  const posted = optional(record, "offers", "the solution");
  const offers = posted === null ? { kind: "linear", prices: eq.payments, caps: everything, retainers: nothing } : {
    kind: word(field(posted, "kind", "the offers"), ["linear", "capped", "contract"], "the kind of offers"),
    prices: vector(field(posted, "prices", "the offers"), count, "the prices", isAmount),
    caps: vector(field(posted, "caps", "the offers"), count, "the caps", isShare),
    retainers: vector(field(posted, "retainers", "the offers"), count, "the retainers", isAmount),
    most: numberOf(field(posted, "most", "the offers"), "the most that offers can cost"),
  };
  eq.retainers = given("retainers", version < 3 && posted !== null ? offers.retainers : nothing, isAmount);
  const apart = optional(record, "outside", "the solution"), limits = optional(record, "limits", "the solution");
  return {
    version, game, goal, eq, offers,
    outside: apart === null ? null : vector(apart, count, "the outside utilities", (v) => v < Infinity),
    status: word(field(record, "status", "the solution"), STATES, "the status"),
    objective: numberOf(field(record, "objective", "the solution"), "the objective"),
    lower: numberOf(field(record, "lower_bound", "the solution"), "the lower bound"),
    budget: numberOf(field(record, "budget", "the solution"), "the budget"),
    robust: flag(field(record, "robust", "the solution"), "robust"),
    gap: limits === null ? 0 : notNegative(field(limits, "gap", "the limits"), "the gap"),
    certificate: optional(record, "certificate", "the solution"),
  };
}

// ------------------------------------------------------------------ the claim

const ROUND = primes(64).map((p) => Math.floor((Math.cbrt(p) % 1) * 2 ** 32));

function primes(count) {
  const found = [];
  for (let n = 2; found.length < count; n++) if (found.every((p) => n % p)) found.push(n);
  return found;
}

/** SHA-256 of bytes, in hexadecimal. */
export function sha256(bytes) {
  const state = primes(8).map((p) => Math.floor((Math.sqrt(p) % 1) * 2 ** 32));
  const padded = new Uint8Array(((bytes.length + 72) >> 6) << 6), view = new DataView(padded.buffer), w = new Uint32Array(64);
  padded.set(bytes);
  padded[bytes.length] = 128;
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n);
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  for (let start = 0; start < padded.length; start += 64) {
    for (let i = 0; i < 64; i++) {
      if (i < 16) { w[i] = view.getUint32(start + 4 * i); continue; }
      const a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10));
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUND[i] + w[i]) | 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((v, i) => { state[i] = (state[i] + v) | 0; });
  }
  return state.map((v) => (v >>> 0).toString(16).padStart(8, "0")).join("");
}

/** The digest of what a solution claims. */
function claimOf({ game, goal, offers, outside, lower }) {
  const parts = [], m = game.count, n = game.keep.length;
  const put = (name, numbers = []) => {
    parts.push(new TextEncoder().encode(`${name}\n`));
    const view = new DataView(new ArrayBuffer(8 * numbers.length));
    numbers.forEach((v, i) => view.setFloat64(8 * i, v + 0));
    parts.push(new Uint8Array(view.buffer));
  };
  put("stackfu claim 1");
  if (game.rows) put(`features ${m} ${game.width}`, game.rows.flat());
  else { put(`products ${m}`, game.products); put(`norms ${m}`, game.norms); }
  put(`counts ${m}`, game.counts);
  put(`sizes ${m}`, game.sizes);
  put(`removed ${game.removed.length}`, game.removed);
  put(`costs ${n}`, game.costs);
  put("constants 3", [game.lambda_q, game.loss_constant, game.sampling_constant]);
  game.targets.forEach((t, j) => put(`target ${t.kind} ${t.values.length}`, [game.weights[j], ...t.values]));
  put("sampling 1", [Number(game.sampling)]);
  put("objective 6", [goal.budget, goal.payment_weight, goal.loss_weight, goal.max_loss, goal.min_total, Number(goal.finite_sample)]);
  put(`offers ${offers.kind} ${n}`, [...offers.prices, ...offers.caps, ...offers.retainers]);
  put(`outside ${outside === null ? 0 : n}`, outside ?? []);
  put("bound 1", [lower]);
  const bytes = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) { bytes.set(part, at); at += part.length; }
  return sha256(bytes);
}

// ------------------------------------------------------------------ the game that is meant

/** Everything derived from the stored numbers, enclosed. */
function spaceOf(game, goal) {
  const keep = game.keep, count = keep.length, all = game.sizes.map(exact), own = keep.map((i) => all[i]), owned = sum(own);
  const everybody = sum(all), costs = game.costs.map(exact), C = exact(game.loss_constant);
  const alpha = own.map((n) => div(n, owned)), lambda = mul(exact(game.lambda_q), C), U = times(lambda, 2n);
  const theta = costs.map((c, k) => div(c, mul(U, alpha[k]))), a = div(exact(game.sampling_constant), mul(C, owned));
  const weights = game.weights.map(exact), W = sum(weights);
  const { K, cross, centred } = productsOf(game, alpha);
  const inner = (i, shares) => sum(shares.map((s, j) => (s === ZERO ? ZERO : mul(s, cross(i, j)))));
  const h = new Array(count).fill(ZERO);
  let constant = ZERO;
  game.targets.forEach((target, j) => {
    if (target.kind === "remaining") return;
    if (target.kind === "point") {
      const there = centred(target.values);
      keep.forEach((i, k) => { h[k] = add(h[k], mul(weights[j], dot(centred(game.rows[i]), there))); });
      constant = add(constant, mul(weights[j], dot(there, there)));
      return;
    }
    const shares = target.kind === "original" ? all.map((n) => div(n, everybody)) : target.values.map(exact);
    const towards = shares.map((_, i) => inner(i, shares));
    keep.forEach((i, k) => { h[k] = add(h[k], mul(weights[j], towards[i])); });
    constant = add(constant, mul(weights[j], dot(shares, towards)));
  });
  const far = K.map((row, k) => row.map((v, j) => positive(sub(add(row[k], K[j][j]), times(v, 2n)))));
  const scale = far.flat().reduce(larger), norms = keep.map((i) => (game.rows ? dot(game.rows[i].map(exact), game.rows[i].map(exact)) : exact(game.norms[i])));
  const eta = goal.finite_sample || game.sampling ? variancesOf(game, norms, scale).map((v) => div(mul(W, v), owned)) : new Array(count).fill(ZERO);
  const defect = game.rows ? 0n : defectOf(K);
  const reach = far.map((row) => row.reduce(larger).hi + 2n * defect);
  const h_original = game.paper ? mul(weights[1], spreadOf(all, everybody, inner)) : ZERO;
  return { count, alpha, lambda, U, theta, a, costs, weights, W, K, h, constant, eta, sampling: mul(W, a), defect, reach, scale, norms, centred, owned, apart: h_original };
}

const spreadOf = (all, everybody, inner) => {
  const shares = all.map((n) => div(n, everybody));
  return dot(shares, shares.map((_, i) => inner(i, shares)));
};

/** Inner products seen from mu_N: of the remaining clients, of any two original ones, and of feature rows. */
function productsOf(game, alpha) {
  const keep = game.keep;
  let G, centred = null;
  if (game.rows) {
    const rows = game.rows.map((row) => row.map(exact));
    const mean = Array.from({ length: game.width }, (_, d) => sum(keep.map((i, k) => mul(alpha[k], rows[i][d]))));
    centred = (row) => row.map((v, d) => sub(exact(v), mean[d]));
    const seen = game.rows.map(centred), memory = new Map();
    const cross = (i, j) => {
      const key = i <= j ? i * game.count + j : j * game.count + i;
      if (!memory.has(key)) memory.set(key, i === j ? sum(seen[i].map(square)) : dot(seen[i], seen[j]));
      return memory.get(key);
    };
    return { K: keep.map((i) => keep.map((j) => cross(i, j))), cross, centred };
  }
  G = Array.from({ length: game.count }, (_, i) => game.products.slice(i * game.count, (i + 1) * game.count).map(exact));
  const r = G.map((row) => sum(keep.map((j, k) => mul(alpha[k], row[j])))), grand = sum(keep.map((i, k) => mul(alpha[k], r[i])));
  const cross = (i, j) => add(sub(sub(G[i][j], r[i]), r[j]), grand);
  return { K: keep.map((i) => keep.map((j) => cross(i, j))), cross, centred };
}

/** A number with K + defect I positive semidefinite, by elimination in intervals. */
function defectOf(K) {
  const trace = K.reduce((total, row, k) => total + most(row[k].hi, 0n), 0n);
  for (let shift = (trace >> 120n) + (1n << 60n); shift <= (trace >> 20n) + (1n << 100n); shift <<= 6n) if (eliminates(K, shift)) return shift;
  throw new NotProved("the inner products are not those of any embeddings");
}

function eliminates(K, shift) {
  const A = K.map((row, i) => row.map((v, j) => (i === j ? add(v, point(shift)) : v)));
  for (let i = 0; i < A.length; i++) {
    if (A[i][i].lo <= 0n) return false;
    for (let j = i + 1; j < A.length; j++) {
      const part = div(A[i][j], A[i][i]);
      for (let k = j; k < A.length; k++) A[j][k] = sub(A[j][k], mul(part, A[i][k]));
    }
  }
  return true;
}

function variancesOf(game, norms, scale) {
  const largest = norms.reduce(larger);
  if (scale.lo > 0n && scale.hi < largest.lo >> 40n) throw new Unable("the embeddings are nearly alike, so the variance of a sample is not clear");
  const own = game.keep.map((i) => game.counts[i]), pooled = own.reduce((p, q) => p + q, 0);
  return own.map((n, k) => {
    const number = scale.hi === 0n ? pooled : n;
    if (!(number > 1)) return UNIT;
    const factor = div(exact(number), sub(exact(number), UNIT));
    return smaller(UNIT, mul(factor, positive(sub(UNIT, norms[k]))));
  });
}

// ------------------------------------------------------------------ the point

/** Spend, total, loss, distances and slopes at a profile, enclosed. */
function pointOf(space, payments, shares, caps) {
  const { alpha, K, lambda, a, W } = space, x = shares.map(exact), p = payments.map(exact), cap = caps.map(exact);
  const y = x.map((v, k) => mul(alpha[k], v)), S = sum(y);
  if (S.lo <= 0n) throw new Unable("hardly anything takes part");
  const z = y.map((v) => div(v, S)), inner = K.map((row) => dot(row, z)), norm = dot(z, inner);
  const squares = K.map((row, k) => positive(add(sub(row[k], times(inner[k], 2n)), norm)));
  const loss = add(sub(add(mul(W, norm), space.constant), times(dot(space.h, z), 2n)), div(add(dot(space.eta, z), space.sampling), S));
  const slope = p.map((v, k) => add(sub(v, space.costs[k]), mul(mul(lambda, alpha[k]), add(div(times(squares[k], 2n), S), div(a, square(S))))));
  return { x, p, cap, y, S, z, squares, loss, slope, spend: dot(p, x) };
}

/** Upper bounds of what clients gain by deviating, beside a billionth of their stakes: the first client for whom that fails, or -1. */
function firstWhoGains(space, at) {
  return at.slope.findIndex((slope, k) => {
    const more = mul(positive(slope), positive(sub(at.cap[k], at.x[k]))), less = mul(positive(neg(slope)), at.x[k]);
    const stakes = larger(larger(space.costs[k], at.p[k]), mul(space.lambda, at.squares[k]));
    return !(most(more.hi, less.hi) * 1_000_000_000n <= stakes.lo);
  });
}

/** The largest gain of a client in money: an enclosure, from its utility at the best answer that floats find. */
function regretOf(space, at) {
  let found = ZERO;
  for (let k = 0; k < space.count; k++) found = larger(found, gainOf(space, at, k));
  return found;
}

function gainOf(space, at, k) {
  const { alpha, lambda, a } = space, rest = sub(at.S, at.y[k]), q = mul(at.squares[k], square(at.S)), net = sub(at.p[k], space.costs[k]);
  const alone = at.z.every((z, i) => i === k || z.hi === 0n);
  if (alone && a.hi === 0n) return larger(positive(mul(net, sub(at.cap[k], at.x[k]))), positive(neg(mul(net, at.x[k]))));
  const slopeAt = (x) => {
    const S = add(rest, mul(alpha[k], x));
    return add(net, mul(mul(lambda, alpha[k]), add(div(times(q, 2n), mul(S, square(S))), div(a, square(S)))));
  };
  // bisect for the best answer on a grid of 2^-80 of everything; whatever it finds, the bounds below hold
  let low = alone ? 1n << 176n : 0n, high = at.cap[k].lo;
  if (low > high) return ZERO;
  for (let i = 0; i < 90 && high - low > 1n << 170n; i++) {
    const half = (low + high) >> 1n;
    if (slopeAt(point(half)).lo > 0n) low = half; else high = half;
  }
  const ends = [low, high].map((x) => {
    const S = add(rest, mul(alpha[k], point(x))), step = sub(point(x), at.x[k]), slope = slopeAt(point(x));
    const saved = add(mul(q, div(add(S, at.S), mul(square(S), square(at.S)))), div(a, mul(S, at.S)));
    const gain = mul(step, add(net, mul(mul(lambda, alpha[k]), saved)));
    const beyond = larger(mul(positive(slope), positive(sub(at.cap[k], point(x)))), mul(positive(neg(slope)), point(x)));
    return interval(gain.lo, gain.hi + beyond.hi);
  });
  return interval(most(0n, most(ends[0].lo, ends[1].lo)), most(0n, least(ends[0].hi, ends[1].hi)));
}

function residualOf(space, at) {
  let found = ZERO;
  for (let k = 0; k < space.count; k++) {
    const unit = mul(space.U, space.alpha[k]), pull = add(at.squares[k], div(half(space.a), at.S));
    const g = sub(pull, mul(at.S, div(sub(space.costs[k], at.p[k]), unit)));
    const wrong = larger(at.x[k].hi < at.cap[k].lo ? positive(g) : ZERO, at.x[k].lo > 0n ? positive(neg(g)) : ZERO);
    const terms = larger(pull, mul(at.S, div(larger(space.costs[k], at.p[k]), unit)));
    if (wrong.hi > 0n) found = larger(found, terms.lo > 0n ? div(wrong, terms) : interval(0n, ONE));
  }
  return found;
}

// ------------------------------------------------------------------ knots

const isWhole = (v) => Number.isSafeInteger(v);

function endsOf(value, count, length, where) {
  const ends = arrayOf(value, where);
  if (ends.length !== count || !ends.every(isWhole) || ends.some((v, i) => v < (i ? ends[i - 1] : 0)) || (count ? ends[count - 1] : 0) !== length) {
    throw new BadFile(`${where} does not fit`);
  }
  return ends;
}

/** Sparse vectors, cut into one per knot: pairs of client and value. */
function sparseOf(record, name, count, endsName) {
  const clients = arrayOf(field(record, `${name}_clients`, "the certificate"), `${name}_clients`);
  const values = arrayOf(field(record, `${name}_values`, "the certificate"), `${name}_values`);
  if (clients.length !== values.length) throw new BadFile(`${name}_clients and ${name}_values differ in length`);
  const ends = endsOf(field(record, endsName, "the certificate"), count, values.length, endsName);
  return ends.map((end, i) => {
    const start = i ? ends[i - 1] : 0;
    return { who: clients.slice(start, end), what: values.slice(start, end) };
  });
}

function readKnots(record, names) {
  const stored = field(record, "knot_numbers", "the certificate"), flat = arrayOf(stored, "knot_numbers", 2), count = flat.length / 5;
  if (flat.length && flat.shape[1] !== 5) throw new BadFile("knot_numbers does not have five columns");
  if (count > MOST_NODES) throw new Unable(`this checker takes up to ${MOST_NODES} knots, not ${count}`);
  const isPoint = arrayOf(field(record, "centre_is_point", "the certificate"), "centre_is_point");
  if (isPoint.length !== count) throw new BadFile("centre_is_point does not fit the number of knots");
  const parts = Object.fromEntries(names.map(([name, ends]) => [name, sparseOf(record, name, count, ends)]));
  return Array.from({ length: count }, (_, i) => ({
    numbers: flat.slice(5 * i, 5 * i + 5), isPoint: isPoint[i] !== 0, ...Object.fromEntries(names.map(([name]) => [name, parts[name][i]])),
  }));
}

/** A sparse vector as one number per client. */
function dense({ who, what }, count, where) {
  const out = new Array(count).fill(ZERO), seen = new Set();
  who.forEach((k, i) => {
    if (!isWhole(k) || k < 0 || k >= count || seen.has(k)) throw new NotProved(`${where} names client ${k}, who does not exist or was named before`);
    if (!Number.isFinite(what[i])) throw new NotProved(`${where} holds ${what[i]}, not a finite number`);
    seen.add(k);
    out[k] = exact(what[i]);
  });
  return out;
}

function checkMultipliers(goal, values, signed, where) {
  if (!values.every(Number.isFinite)) throw new NotProved(`${where} holds numbers that are not finite`);
  if (signed.some((v) => v < 0)) throw new NotProved(`${where} has a negative multiplier`);
  const [, beta, gamma] = signed;
  if ((beta > 0 && goal.budget === Infinity) || (gamma > 0 && goal.max_loss === Infinity)) throw new NotProved(`${where} has a multiplier for a limit that there is not`);
}

/** A centre with its products: with the clients, itself, the length of its weights. */
function centreOf(space, stored, isPoint, count, seen, where) {
  if (isPoint) {
    if (!space.centred) throw new NotProved(`${where} has a centre in feature space, and there are no features`);
    if (!stored.what.every(Number.isFinite)) throw new NotProved(`${where} has a centre with a coordinate that is not finite`);
    const rows = seen.rows, coordinates = seen.origin(stored.what);
    if (coordinates.length !== rows[0].length) throw new NotProved(`${where} has a centre that does not fit the features`);
    return { coordinates, inner: rows.map((row) => dot(row, coordinates)), square: dot(coordinates, coordinates), size: ZERO };
  }
  const weights = dense(stored, count, where), used = weights.map((_, k) => k).filter((k) => weights[k] !== ZERO);
  const inner = space.K.map((row) => sum(used.map((k) => mul(row[k], weights[k]))));
  return { weights, used, inner, square: sum(used.map((k) => mul(weights[k], inner[k]))), size: root(sum(used.map((k) => square(weights[k])))) };
}

function crossOf(a, b) {
  if (a.weights) return sum(a.used.map((k) => mul(a.weights[k], b.inner[k])));
  return b.weights ? crossOf(b, a) : dot(a.coordinates, b.coordinates);
}

// ------------------------------------------------------------------ the bound for linear payments

function checkLinear(game, goal, space, record, progress) {
  const lower = finite(field(record, "lower", "the certificate"), "the bound of the certificate"), L = exact(lower), count = space.count;
  const stored = readKnots(record, [["row", "row_ends"], ["centre", "centre_ends"]]), knots = new Map(), seen = rowsOf(game, space);
  const kinds = arrayOf(field(record, "node_kinds", "the certificate"), "node_kinds");
  if (kinds.length > MOST_NODES) throw new Unable(`this checker takes trees of up to ${MOST_NODES} nodes, not ${kinds.length}`);
  const splits = arrayOf(field(record, "node_splits", "the certificate"), "node_splits");
  const asked = arrayOf(field(record, "node_clients", "the certificate"), "node_clients");
  const pairs = arrayOf(field(record, "leaf_steps", "the certificate"), "leaf_steps", 2), leaves = kinds.filter((k) => k === 2).length;
  const stops = endsOf(field(record, "leaf_ends", "the certificate"), leaves, pairs.length / 2, "leaf_ends");
  const lossWeight = exact(goal.loss_weight), payWeight = exact(goal.payment_weight);

  const knot = (index) => {
    if (!isWhole(index) || index < 0 || index >= stored.length) throw new NotProved(`there is no knot ${index}`);
    if (knots.has(index)) return knots.get(index);
    const { numbers, row, centre, isPoint } = stored[index], where = `knot ${index}`;
    checkMultipliers(goal, numbers, numbers.slice(1, 4), where);
    const [, omega, beta, gamma, level] = numbers.map(exact), P = dense(row, count, where), who = P.map((_, k) => k).filter((k) => P[k] !== ZERO);
    const ell = add(mul(omega, lossWeight), gamma), nu = mul(space.U, add(mul(omega, payWeight), beta)), total = sum(P);
    const made = {
      number: index, at: numbers[0], omega, beta, gamma, level, P, ell, nu, total, T: add(add(mul(ell, space.W), nu), total),
      centre: centreOf(space, centre, isPoint, count, seen, where), mixed: space.K.map((line) => sum(who.map((k) => mul(line[k], P[k])))),
    };
    knots.set(index, made);
    return made;
  };

  // multipliers at a total on the line through two knots
  const endOf = (s, one, two, cross) => {
    const share = one === two ? 0 : (s - one.at) / (two.at - one.at), tau = exact(share > 0 ? Math.min(share, 1) : 0), rest = sub(UNIT, tau);
    const mix = (a, b) => add(mul(rest, a), mul(tau, b));
    const A = mul(rest, one.T), B = mul(tau, two.T), T = mix(one.T, two.T);
    if (T.lo <= 0n) throw new NotProved("the weight T of ||m||^2 is not positive");
    const slope = one.centre.inner.map((v, k) => sub(add(mul(A, v), mul(B, two.centre.inner[k])), mix(one.mixed[k], two.mixed[k])));
    const pull = add(add(mul(square(A), one.centre.square), mul(square(B), two.centre.square)), mul(times(mul(A, B), 2n), cross));
    const total = mix(one.total, two.total), ell = mix(one.ell, two.ell), nu = mix(one.nu, two.nu);
    const N = add(mul(ell, space.sampling), mul(half(space.a), sub(total, nu)));
    return {
      s: exact(s), omega: mix(one.omega, two.omega), beta: mix(one.beta, two.beta), gamma: mix(one.gamma, two.gamma), level: mix(one.level, two.level),
      P: one.P.map((v, k) => mix(v, two.P[k])), ell, nu, T, N, slope, pull, parts: [div(A, T), div(B, T)],
    };
  };

  const constantOf = (end) => {
    let value = sub(mul(end.ell, space.constant), mul(end.omega, L));
    if (goal.budget < Infinity) value = sub(value, mul(end.beta, exact(goal.budget)));
    if (goal.max_loss < Infinity) value = sub(value, mul(end.gamma, exact(goal.max_loss)));
    return sub(add(value, end.level), div(end.pull, end.T));
  };

  const judge = (leaf) => {
    let near = new Array(count).fill(0n), far = space.reach;
    for (const [number, [first, second]] of leaf.steps.entries()) {
      const known = classify(space, leaf, near, far);
      if (known === null) return;
      const one = knot(first), two = knot(second), cross = one === two ? one.centre.square : crossOf(one.centre, two.centre);
      if (leaf.low === 0) { fromZero(leaf, known, one, two, cross); return; }
      const ends = [leaf.low, leaf.high].map((s) => endOf(s, one, two, cross));
      ends.forEach((end) => end.P.forEach((v, k) => {
        if (v.lo < 0n && !known.volunteer[k]) throw new NotProved(`client ${k} has a negative multiplier and is no volunteer`);
      }));
      const distance = one === two ? ZERO : apartOf(ends, one.centre, two.centre, cross, space.defect);
      const lost = space.defect === 0n ? 0n : mul(mul(larger(ends[0].T, ends[1].T), point(space.defect)), square(add(longest(leaf.low), larger(one.centre.size, two.centre.size)))).hi;
      const margin = marginOf(ends, known, distance) - lost;
      if (margin > 0n || (margin === 0n && ends.every((end) => end.omega.lo > 0n))) return;
      if (number + 1 === leaf.steps.length) throw new NotProved(`its multipliers prove ${words(approximate(margin), 3)}, not 0`);
      [near, far] = narrowed(ends, one.centre, two.centre, cross, distance, margin, near, far, longest(leaf.low));
    }
    throw new NotProved("it has no multipliers");
  };

  const longest = (low) => {
    const largest = space.alpha.reduce(larger);
    return low > 0 ? root(smaller(UNIT, div(largest, exact(low)))) : UNIT;
  };

  const apartOf = (ends, one, two, cross, defect) => {
    const u = sub(ends[0].parts[0], ends[1].parts[0]), v = sub(ends[0].parts[1], ends[1].parts[1]);
    const value = add(add(mul(square(u), one.square), mul(square(v), two.square)), mul(times(mul(u, v), 2n), cross));
    return defect === 0n ? positive(value) : value;
  };

  const marginOf = (ends, known, distance) => {
    const [a, b] = [ends[0].s, ends[1].s], h = sub(b, a), [va, vb] = ends, ab = mul(a, b);
    const bend = div(positive(mul(h, sub(mul(b, va.nu), mul(a, vb.nu)))), square(add(a, b)));
    const tilt = div(mul(h, sub(mul(b, va.ell), mul(a, vb.ell))), ab), tilts = [div(tilt, a), div(tilt, b)];
    const steep = larger(...tilts), flat = smaller(...tilts), unpaid = ends.map((end) => div(sub(end.nu, bend), end.s));
    const Y = [ZERO, ZERO], H = [ZERO, ZERO], held = [ZERO, ZERO];
    let Q = ZERO, Q2 = ZERO, drift = ZERO;
    for (let k = 0; k < count; k++) {
      const alpha = space.alpha[k], theta = space.theta[k], eta = space.eta[k];
      const pi = ends.map((end, i) => (known.paid[k] ? ZERO : positive(sub(end.P[k], mul(alpha, unpaid[i])))));
      const charged = pi.some((v) => v.hi > 0n);
      if (charged && known.ceiling[k] === null) throw new NotProved(`the distance of client ${k} has no bound`);
      const roof = larger(charged ? point(known.ceiling[k]) : ZERO, mul(theta, b));
      const f = ends.map((end) => mul(end.s, sub(roof, mul(theta, end.s))));
      const psi = ends.map((end, i) => {
        const plain = add(sub(end.level, times(end.slope[k], 2n)), times(mul(end.ell, space.h[k]), 2n));
        const spend = mul(end.nu, sub(mul(theta, end.s), space.K[k][k])), noise = div(mul(end.ell, eta), end.s);
        return add(sub(sub(plain, spend), noise), div(mul(pi[i], f[i]), alpha));
      });
      const swing = sub(mul(mul(h, sub(vb.nu, va.nu)), theta), div(mul(sub(pi[1], pi[0]), sub(f[1], f[0])), alpha));
      const arch = div(mul(theta, square(h)), alpha);
      const bump = add(add(swing, mul(eta, steep)), mul(arch, larger(...pi))), dent = add(add(swing, mul(eta, flat)), mul(arch, smaller(...pi)));
      const volunteer = known.volunteer[k], wide = known.wide[k];
      const never = !volunteer && larger(...psi).hi + quarter(positive(bump)).hi < 0n;
      const always = volunteer || smaller(...psi).lo + quarter(interval(least(dent.lo, 0n), 0n)).lo > 0n;
      psi.forEach((value, i) => {
        if (wide) H[i] = larger(H[i], positive(value));
        else Y[i] = add(Y[i], mul(alpha, volunteer ? value : positive(value)));
        held[i] = add(held[i], mul(ends[i].P[k], sub(space.K[k][k], mul(theta, ends[i].s))));
      });
      if (!never && wide) Q2 = larger(Q2, positive(bump));
      if (!never && !wide) Q = add(Q, mul(alpha, always ? bump : positive(bump)));
      drift = add(drift, mul(sub(vb.P[k], va.P[k]), theta));
    }
    const g = ends.map((end, i) => sub(add(add(constantOf(end), held[i]), div(sub(end.N, Y[i]), end.s)), H[i]));
    const inner = sub(div(mul(h, sub(mul(b, sub(Y[0], va.N)), mul(a, sub(Y[1], vb.N)))), ab), Q);
    const weight = distance.lo >= 0n ? smaller(va.T, vb.T) : larger(va.T, vb.T);
    const delta = sub(add(add(mul(weight, distance), mul(h, drift)), smaller(div(inner, a), div(inner, b))), Q2);
    return lowest(g[0].lo, g[1].lo, delta.lo);
  };

  const fromZero = (leaf, known, one, two, cross) => {
    if (one !== two) throw new NotProved("an interval from 0 needs constant multipliers");
    const end = endOf(leaf.high, one, two, cross), u = end.s;
    if (end.P.some((v) => v.lo < 0n)) throw new NotProved("an interval from 0 needs multipliers that are not negative");
    if (space.a.hi > 0n && end.N.lo < 0n) throw new NotProved("small samples are not bounded near 0");
    let worst = ZERO, held = ZERO;
    for (let k = 0; k < count; k++) {
      const alpha = space.alpha[k], theta = space.theta[k];
      const pi = known.paid[k] || end.P[k] === ZERO ? ZERO : positive(sub(end.P[k], div(mul(alpha, end.nu), u)));
      if (pi.hi > 0n && known.ceiling[k] === null) throw new NotProved(`the distance of client ${k} has no bound`);
      const roof = larger(pi.hi > 0n ? point(known.ceiling[k]) : ZERO, mul(theta, u));
      const plain = add(sub(end.level, times(end.slope[k], 2n)), times(mul(end.ell, space.h[k]), 2n));
      const psi = add(sub(add(plain, mul(end.nu, space.K[k][k])), div(mul(end.ell, space.eta[k]), u)), div(mul(mul(pi, roof), u), alpha));
      worst = larger(worst, psi);
      held = add(held, mul(end.P[k], sub(space.K[k][k], mul(theta, u))));
    }
    const lost = mul(mul(end.T, point(space.defect)), square(add(UNIT, one.centre.size)));
    const margin = sub(sub(add(add(constantOf(end), held), div(positive(end.N), u)), worst), lost).lo;
    if (!(margin > 0n || (margin === 0n && end.omega.lo > 0n))) throw new NotProved(`its multipliers prove ${words(approximate(margin), 3)}, not 0`);
  };

  const narrowed = (ends, one, two, cross, distance, margin, near, far, q) => {
    const defect = point(space.defect), size = larger(one.size, two.size), room = (x, y) => mul(defect, square(add(x, y)));
    const radius = root(add(div(point(-margin), smaller(ends[0].T, ends[1].T)), room(q, size)));
    const between = one === two ? ZERO : root(positive(add(distance, room(size, size))));
    const norms = ends.map(({ parts: [p, r] }) => add(add(mul(square(p), one.square), mul(square(r), two.square)), mul(times(mul(p, r), 2n), cross)));
    const closer = [], farther = [];
    for (let k = 0; k < count; k++) {
      const gaps = ends.map(({ parts: [p, r] }, i) => positive(add(sub(space.K[k][k], times(add(mul(p, one.inner[k]), mul(r, two.inner[k])), 2n)), norms[i])));
      const above = gaps.map((gap) => root(add(gap, room(UNIT, size)))), below = gaps.map(root);
      const furthest = add(larger(...above), radius), closest = positive(sub(half(sub(add(...below), between)), radius));
      farther.push(least(far[k], square(furthest).hi));
      closer.push(most(near[k], sub(square(positive(interval(closest.lo, closest.lo))), room(UNIT, q)).lo));
    }
    return [closer, farther];
  };

  let node = 0, split = 0, client = 0, done = 0;
  const stack = [{ low: goal.min_total, high: 1, paid: [], volunteer: [] }];
  while (stack.length) {
    const { low, high, paid, volunteer } = stack.pop();
    if (node === kinds.length) throw new NotProved("the tree ends before everything is covered");
    const kind = kinds[node++];
    if (kind === 0) {
      const at = splits[split++];
      if (!(low < at && at < high)) throw new NotProved(`a split at ${at} lies outside (${low}, ${high})`);
      stack.push({ low: at, high, paid, volunteer }, { low, high: at, paid, volunteer });
    } else if (kind === 1) {
      const k = asked[client++];
      if (!isWhole(k) || k < 0 || k >= count) throw new NotProved(`the tree decides about client ${k}, who does not exist`);
      stack.push({ low, high, paid, volunteer: [...volunteer, k] }, { low, high, paid: [...paid, k], volunteer });
    } else if (kind === 2) {
      const start = done ? stops[done - 1] : 0, steps = [];
      for (let i = start; i < stops[done]; i++) steps.push([pairs[2 * i], pairs[2 * i + 1]]);
      try {
        judge({ low, high, paid, volunteer, steps });
      } catch (error) {
        if (error instanceof NotProved) throw new NotProved(`leaf ${done}, totals from ${words(low)} to ${words(high)}: ${error.message}`);
        throw error;
      }
      progress(++done, leaves);
    } else throw new BadFile(`a node of the tree has the kind ${kind}`);
  }
  if (node !== kinds.length || split !== splits.length || client !== asked.length) throw new NotProved("the tree goes on after everything is covered");
  return { lower, leaves };
}

/** The least value of (1 - s) left + s right + s (1 - s) bend on [0, 1], from lower bounds of the three. */
function lowest(left, right, bend) {
  const low = least(left, right), rise = left > right ? left - right : right - left;
  if (bend >= 0n || rise >= -bend) return low;
  return low - ceilDiv((-bend - rise) ** 2n, -4n * bend);
}

/** Who is paid, who volunteers, who owns more than the total, upper bounds of D_k; null if the leaf is empty. */
function classify(space, leaf, near, far) {
  const { count, alpha, theta, a } = space, low = exact(leaf.low), high = exact(leaf.high), hasSampling = a.hi > 0n;
  const more = !hasSampling ? 0n : leaf.low > 0 ? div(half(a), low).hi : null, less = hasSampling ? div(half(a), high).lo : 0n;
  const paid = new Array(count).fill(false), volunteer = new Array(count).fill(false), wide = new Array(count).fill(false), ceiling = new Array(count).fill(null);
  leaf.paid.forEach((k) => { paid[k] = true; });
  leaf.volunteer.forEach((k) => { volunteer[k] = true; });
  let owned = 0n;
  for (let k = 0; k < count; k++) {
    if (more !== null) ceiling[k] = far[k] + more;
    const tooFar = near[k] + less > mul(theta[k], high).hi, nearEnough = ceiling[k] !== null && ceiling[k] <= mul(theta[k], low).lo;
    const large = alpha[k].lo > high.hi;
    if ((tooFar && (paid[k] || nearEnough || large)) || (volunteer[k] && large)) return null;
    volunteer[k] ||= tooFar;
    paid[k] = (paid[k] || large || nearEnough) && !volunteer[k];
    wide[k] = large && !volunteer[k];
    if (volunteer[k]) owned += alpha[k].lo;
  }
  return owned > high.hi ? null : { paid, volunteer, wide, ceiling };
}

const rowsOf = (game, space) => (game.rows ? { rows: game.keep.map((i) => space.centred(game.rows[i])), origin: space.centred } : null);

// ------------------------------------------------------------------ the bound for capped offers

function checkCapped(game, goal, space, outside, record, progress) {
  const lower = finite(field(record, "lower", "the certificate"), "the bound of the certificate"), count = space.count;
  const start = finite(field(record, "least", "the certificate"), "the least total");
  const stored = readKnots(record, [["rows", "rows_ends"], ["keep", "keep_ends"], ["centre", "centre_ends"]]), knots = new Map();
  const axes = arrayOf(field(record, "node_axes", "the certificate"), "node_axes"), nodes = axes.length;
  if (nodes > MOST_NODES) throw new Unable(`this checker takes trees of up to ${MOST_NODES} nodes, not ${nodes}`);
  const whose = arrayOf(field(record, "node_clients", "the certificate"), "node_clients"), cuts = arrayOf(field(record, "node_cuts", "the certificate"), "node_cuts");
  const steps = arrayOf(field(record, "steps", "the certificate"), "steps"), stops = endsOf(field(record, "step_ends", "the certificate"), nodes, steps.length, "step_ends");
  if (whose.length !== nodes || cuts.length !== nodes) throw new BadFile("the arrays of the tree do not fit together");
  if (lower <= 0) return { lower, leaves: 0 };
  const seen = game.rows && { rows: game.keep.map((i) => space.centred(game.rows[i])), origin: (values) => values.map(exact) };
  const L = exact(lower), lossWeight = exact(goal.loss_weight), payWeight = exact(goal.payment_weight), halfSampling = half(space.a);
  const leaves = outside === null ? [] : outside.map((o, k) => k).filter((k) => Number.isFinite(outside[k]));

  const knot = (index) => {
    if (!isWhole(index) || index < 0 || index >= stored.length) throw new NotProved(`there is no knot ${index}`);
    if (knots.has(index)) return knots.get(index);
    const { numbers, rows, keep, centre, isPoint } = stored[index], where = `knot ${index}`;
    checkMultipliers(goal, numbers, [...numbers.slice(0, 3), numbers[4]], where);
    const [omega, beta, gamma, level, direct] = numbers.map(exact), P = dense(rows, count, where), asked = dense(keep, count, where);
    const ell = add(mul(omega, lossWeight), gamma), price = mul(space.U, add(mul(omega, payWeight), beta)), top = most(price.lo, 0n);
    const second = point(least(direct.lo, top)), first = positive(sub(price, second));
    const X = asked.map((v, k) => (leaves.includes(k) ? point(least(most(v.lo, 0n), top)) : ZERO));
    const pulls = P.map((v, k) => add(v, half(X[k]))), T = add(add(mul(ell, space.W), first), sum(pulls));
    const middle = centreOf(space, centre, isPoint, count, seen, where), used = pulls.map((_, k) => k).filter((k) => pulls[k].lo !== 0n || pulls[k].hi !== 0n);
    const mixed = space.K.map((line) => sum(used.map((k) => mul(line[k], pulls[k]))));
    const made = {
      omega, beta, gamma, level, ell, first, second, P, X, T, centre: middle, keeps: X.some((v) => v.lo > 0n),
      slope: middle.inner.map((v, k) => sub(mul(T, v), mixed[k])), plain: beta.hi === 0n && gamma.hi === 0n && omega.lo > 0n && !rows.who.length && !keep.who.length,
      fuzz: mul(point(space.defect), square(add(UNIT, middle.size))),
    };
    knots.set(index, made);
    return made;
  };

  const smallTotals = () => {
    if (!(start > 0 && start <= 1)) throw new NotProved(`the tree starts at a total of ${start}`);
    if (start <= goal.min_total) return;
    const sigma = add(space.sampling, space.eta.reduce(smaller)), at = exact(start);
    if (sigma.lo > 0n) {
      let spread = 0n;
      const p = stored.length ? knot(0) : null;
      if (p !== null && p.plain) {
        const gain = space.h.map((h, k) => times(sub(mul(space.W, p.centre.inner[k]), h), 2n)).reduce(smaller);
        spread = most(0n, sub(add(gain, space.constant), mul(space.W, add(p.centre.square, p.fuzz))).lo);
      }
      const below = add(point(spread), div(sigma, at));
      if (mul(lossWeight, below).lo >= L.hi || (goal.max_loss < Infinity && below.lo > exact(goal.max_loss).hi)) return;
    }
    const keeping = sum(leaves.map((k) => positive(add(div(mul(space.lambda, space.a), at), exact(outside[k])))));
    if ((goal.budget < Infinity && keeping.lo > exact(goal.budget).hi) || mul(payWeight, keeping).lo >= L.hi) return;
    throw new NotProved(`totals below ${words(start)} are not ruled out`);
  };

  const eagerness = (region) => {
    const low = exact(region.low), high = exact(region.high), more = div(halfSampling, low), less = div(halfSampling, high);
    return region.near.map((near, k) => {
      const from = sub(add(point(near), less), mul(space.theta[k], high)).lo, to = sub(add(point(region.far[k]), more), mul(space.theta[k], low)).hi;
      const [cutLow, cutHigh] = region.cuts[k];
      return [cutLow !== null && cutLow.lo > from ? cutLow.lo : from, cutHigh !== null && cutHigh.hi < to ? cutHigh.hi : to];
    });
  };

  const isEmpty = (region) => {
    const low = exact(region.low), tops = region.most.map((h, k) => smaller(h, div(space.alpha[k], low)));
    return eagerness(region).some(([from, to]) => from > to) || region.near.some((v, k) => v > region.far[k]) || region.least.some((v, k) => v.lo > tops[k].hi)
      || sum(region.least).lo > ONE || sum(tops).hi < ONE;
  };

  const marginOf = (region, p) => {
    if (p.T.lo < 0n) return null;
    const ends = [exact(region.low), exact(region.high)], [a, b] = ends, places = eagerness(region).map(([from, to]) => {
      const top = most(from, to);
      return [from, least(most(0n, from), top), top];
    });
    const flat = region.low === region.high, gap = flat ? ZERO : sub(div(UNIT, root(a)), div(UNIT, root(b)));
    const V = square(gap), V2 = flat ? ZERO : div(quarter(times(square(sub(b, a)), 3n)), square(square(a)));
    const lowestDistance = div(halfSampling, b), clientSums = [ZERO, ZERO];
    let fall = 0n;
    for (let k = 0; k < count; k++) {
      const alpha = space.alpha[k], theta = space.theta[k], capped = div(alpha, b).lo < region.most[k].lo, near = add(point(region.near[k]), lowestDistance);
      const way = (other) => {
        const second = other ? sub(p.second, p.X[k]) : p.second;
        const eager = places[k].map((f) => (f > 0n ? mul(p.first, point(f)) : mul(second, point(-f))));
        const corners = ends.map((s) => {
          let psi = add(sub(p.level, times(p.slope[k], 2n)), times(mul(p.ell, space.h[k]), 2n));
          psi = sub(sub(psi, mul(p.first, sub(mul(theta, s), space.K[k][k]))), div(mul(p.ell, space.eta[k]), s));
          if (p.X[k].hi > 0n) psi = sub(psi, mul(p.X[k], other ? mul(theta, s) : smaller(near, mul(theta, s))));
          const shares = [region.least[k], capped ? div(alpha, s) : region.most[k]];
          return shares.map((z) => places[k].map((f, i) => sub(mul(z, sub(eager[i], psi)), mul(p.P[k], point(f))).lo));
        });
        const lows = corners.map((rows) => rows.flat().reduce(least));
        return { corners, lows, eager, total: lows[0] + lows[1] };
      };
      let chosen = way(false), other = false;
      if (p.X[k].hi > 0n) { const second = way(true); if (second.total > chosen.total) { chosen = second; other = true; } }
      chosen.lows.forEach((v, i) => { clientSums[i] = add(clientSums[i], point(v)); });
      if (flat) continue;
      let worst = 0n;
      const still = [region.least[k], region.most[k]].map((z) => mul(mul(mul(p.ell, space.eta[k]), z), V).hi);
      const common = sub(sub(sub(times(p.slope[k], 2n), times(mul(p.ell, space.h[k]), 2n)), p.level), mul(p.first, space.K[k][k]));
      for (let i = 0; i < 3; i++) {
        let held = add(common, chosen.eager[i]);
        if (!other && p.X[k].hi > 0n) held = add(held, mul(p.X[k], near));
        const moving = add(mul(positive(mul(alpha, held)), V), mul(mul(mul(p.ell, alpha), space.eta[k]), V2)).hi;
        [still[0], capped ? moving : still[1]].forEach((value, j) => {
          const spare = least(...chosen.corners.map((rows, e) => rows[j][i] - chosen.lows[e]));
          worst = most(worst, value - spare);
        });
      }
      fall += worst;
    }
    const values = ends.map((s, i) => {
      const thin = div(halfSampling, s);
      let value = sub(mul(p.ell, add(space.constant, div(space.sampling, s))), mul(p.first, thin));
      for (let k = 0; k < count; k++) {
        value = add(value, mul(p.P[k], sub(add(space.K[k][k], thin), mul(space.theta[k], s))));
        if (p.X[k].hi > 0n) value = add(value, mul(p.X[k], add(add(half(space.K[k][k]), thin), div(exact(outside[k]), space.U))));
      }
      value = sub(value, mul(p.omega, L));
      if (goal.budget < Infinity) value = sub(value, mul(p.beta, exact(goal.budget)));
      if (goal.max_loss < Infinity) value = sub(value, mul(p.gamma, exact(goal.max_loss)));
      return add(sub(add(value, p.level), mul(p.T, add(p.centre.square, p.fuzz))), clientSums[i]).lo;
    });
    const scattered = add(mul(p.ell, space.sampling), mul(halfSampling, sub(add(sum(p.P), sum(p.X)), p.first)));
    return least(...values) - fall - mul(positive(scattered), V).hi;
  };

  const narrowed = (region, p, margin) => {
    if (margin === null || p.T.lo <= 0n) return region;
    const twice = times(p.fuzz, 2n), radius = root(add(div(point(-margin), p.T), twice)), slack = times(p.fuzz, 4n).hi, near = [], far = [];
    for (let k = 0; k < count; k++) {
      const between = add(sub(space.K[k][k], times(p.centre.inner[k], 2n)), p.centre.square);
      const gap = root(positive(interval(between.lo, between.hi + twice.hi)));
      const inner = most(gap.lo - radius.hi, 0n), outer = gap.hi + radius.hi;
      near.push(most(region.near[k], most(floorShift(inner * inner) - slack, 0n)));
      far.push(least(region.far[k], ceilShift(outer * outer) + slack));
    }
    return { ...region, near, far };
  };

  smallTotals();
  const total = axes.filter((v) => v < 0).length;
  const stack = [{
    low: start, high: 1, least: new Array(count).fill(ZERO), most: new Array(count).fill(UNIT), near: new Array(count).fill(0n), far: space.reach,
    cuts: new Array(count).fill([null, null]),
  }];
  let node = 0, done = 0;
  while (stack.length) {
    let region = stack.pop(), reached = null;
    if (node === nodes) throw new NotProved("the tree ends before everything is covered");
    const at = node++, axis = axes[at];
    let closed = isEmpty(region);
    for (let i = at ? stops[at - 1] : 0; !closed && i < stops[at]; i++) {
      const p = knot(steps[i]);
      reached = marginOf(region, p);
      if (reached !== null && reached >= 0n) { closed = true; break; }
      region = narrowed(region, p, reached);
      closed = isEmpty(region);
    }
    if (axis < 0) {
      const near = reached === null ? "nothing" : words(approximate(reached), 3);
      if (!closed) throw new NotProved(`leaf ${done}, totals from ${words(region.low)} to ${words(region.high)}: its multipliers prove ${near}, not 0`);
      progress(++done, total);
      continue;
    }
    const cut = cuts[at], k = whose[at];
    if (!Number.isFinite(cut)) throw new NotProved("a cut is not at a finite number");
    if (axis === 0) {
      if (!(region.low <= cut && cut <= region.high)) throw new NotProved(`a cut at ${cut} lies outside [${region.low}, ${region.high}]`);
      stack.push({ ...region, low: cut }, { ...region, high: cut });
      continue;
    }
    if (axis !== 1 && axis !== 2) throw new BadFile(`a node of the tree has the axis ${axis}`);
    if (!isWhole(k) || k < 0 || k >= count) throw new NotProved(`the tree cuts at client ${k}, who does not exist`);
    const value = exact(cut), put = (list, item) => list.map((v, i) => (i === k ? item : v));
    const [from, to] = region.cuts[k];
    if (axis === 1) {
      stack.push({ ...region, least: put(region.least, larger(region.least[k], value)) }, { ...region, most: put(region.most, smaller(region.most[k], value)) });
    } else {
      const higher = from === null || value.lo > from.lo ? value : from, nearer = to === null || value.hi < to.hi ? value : to;
      stack.push({ ...region, cuts: put(region.cuts, [higher, to]) }, { ...region, cuts: put(region.cuts, [from, nearer]) });
    }
  }
  if (node !== nodes) throw new NotProved("the tree goes on after everything is covered");
  return { lower, leaves: done };
}

// ------------------------------------------------------------------ the gap

/** An equilibrium without payments, by best answers in turn in floats; null if none is found. What it is worth is judged exactly. */
function unpaidPoint(game, space) {
  const n = space.count, alpha = space.alpha.map(middle), K = space.K.map((row) => row.map(middle)), lambda = middle(space.lambda), a = middle(space.a);
  const y = alpha.slice();
  for (let round = 0; round < 3000; round++) {
    let moved = 0;
    for (let k = 0; k < n; k++) {
      const rest = y.reduce((total, v, i) => (i === k ? total : total + v), 0), w = game.costs[k] / (2 * lambda * alpha[k]);
      let q = 0;
      for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) if (i !== k && j !== k) q += y[i] * y[j] * (K[i][j] - K[i][k] - K[j][k] + K[k][k]);
      let R = Math.cbrt(Math.max(q, 0) / w) + Math.sqrt(a / (2 * w));
      for (let i = 0; i < 60; i++) R -= (2 * w * R ** 3 - a * R - 2 * Math.max(q, 0)) / (6 * w * R * R - a || 1);
      const next = Math.min(Math.max(R - rest, 0), alpha[k]);
      moved = Math.max(moved, Math.abs(next - y[k]));
      y[k] = y[k] + (round < 500 ? 1 : 0.5) * (next - y[k]);
    }
    if (moved < 1e-16) break;
  }
  const x = y.map((v, k) => Math.min(Math.max(v / alpha[k], 0), 1));
  if (!x.every(Number.isFinite) || !x.some((v) => v > 0)) return null;
  const at = pointOf(space, new Array(n).fill(0), x, new Array(n).fill(1));
  return firstWhoGains(space, at) < 0 ? at : null;
}

/** Whether the gap is what CERTIFIED promises: "proved", "refused", or "not checked". */
function judgeGap({ game, goal, offers, outside, objective, lower, gap }, space, at, high) {
  const weight = exact(goal.loss_weight), pay = exact(goal.payment_weight), epsilon = exact(gap), F = exact(objective), L = exact(lower), small = (n) => exact(n);
  const counts = mul(weight, space.W).hi > 0n, spread = mul(mul(weight, space.W), space.scale);
  const cheapest = space.costs.map((c, k) => positive(sub(c, mul(mul(space.lambda, space.alpha[k]), add(times(space.K[k][k], 2n), space.a)))));
  const price = mul(pay, offers.kind === "linear" ? sum(cheapest) : sum(space.costs)), rho = mul(small(1e-12), counts ? spread : price);
  const weightless = game.paper && counts && space.W.lo > 0n ? mul(mul(weight, div(space.weights[0], space.W)), space.apart) : ZERO;
  const part = exact(Math.max(0.5, Math.min(gap, 0.99))), above = larger(mul(part, sub(F, weightless)), mul(small(1e-6), F));
  const own = larger(smaller(mul(epsilon, F), above), rho), largest = space.norms.reduce(larger);
  const unseen = add(mul(small(1e-14), F), mul(small(1e-25), mul(mul(space.W, weight), largest)));
  const room = (bound) => add(mul(bound, small(1 + 1e-9)), unseen), missing = sub(high, L), closes = (bound) => missing.hi <= room(bound).hi;
  if (!closes(own)) return "refused";
  if (space.scale.hi === 0n && offers.kind === "linear") return "proved";
  const known = larger(counts ? mul(small(1e-6), spread) : price, goal.max_loss === Infinity && goal.min_total === 0 && outside === null ? L : ZERO);
  if (closes(mul(epsilon, known))) return "proved";
  if (!counts) return "refused";
  const unpaid = unpaidPoint(game, space);
  return unpaid !== null && closes(mul(epsilon, mul(weight, unpaid.loss))) ? "proved" : "not checked";
}

// ------------------------------------------------------------------ everything

/** Tell progress at most fifty times. */
const seldom = (progress) => (done, of) => { if (done === of || done % Math.ceil(of / 50) === 0) progress(done, of); };

/** Check a saved solution. Returns { verdict, claim, lines, numbers }: verdict is "proved", "refused", "not checked" or "unreadable". */
export function check(text, progress = () => {}) {
  const lines = [], numbers = {}, say = (what, verdict, said) => { lines.push({ what, verdict, said }); return verdict === "proved"; };
  let claim = null;
  try {
    const read = readSolution(text);
    claim = claimOf(read);
    judgeAll(read, claim, say, seldom(progress), numbers);
  } catch (error) {
    if (error instanceof BadFile) return { verdict: "unreadable", claim: null, lines: [{ what: "file", verdict: "refused", said: error.message }] };
    if (error instanceof Unable) say("file", "not checked", error.message);
    else if (error instanceof NotProved) say("file", "refused", error.message);
    else return { verdict: "unreadable", claim: null, lines: [{ what: "file", verdict: "refused", said: `the file could not be worked on (${error.name})` }] };
  }
  const verdict = ["refused", "not checked"].find((bad) => lines.some((line) => line.verdict === bad)) ?? "proved";
  return { verdict, claim, lines, numbers };
}

function judgeAll(read, claim, say, progress, numbers) {
  const { game, goal, eq, offers, outside, certificate } = read;
  if (certificate !== null) {
    const named = optional(certificate, "claim", "the certificate");
    if (named !== null || read.version >= 3) {
      if (named !== claim) { say("claim", "refused", `the certificate is for another claim, "${shown(named)}", and this file makes ${claim}`); return; }
      say("claim", "proved", `the certificate names the claim of this file, ${claim}`);
    } else say("claim", "not checked", "a file of an earlier version: its certificate names no claim");
  }
  if (!judgeConsistency(read, say)) return;
  const space = spaceOf(game, goal), at = pointOf(space, eq.payments, eq.x, eq.caps);
  if (offers.kind === "contract") say("equilibrium", "not checked", "that everybody accepts its contract is not checked here");
  else judgeEquilibrium(read, space, at, say);
  const high = judgeNumbers(read, space, at, say);
  Object.assign(numbers, { spend: middle(at.spend), loss: middle(at.loss), total: middle(at.S) });
  if (outside !== null) judgeOutside(read, space, at, say);
  const proved = judgeBound(read, space, high, say, progress);
  if (read.status === "CERTIFIED" && proved) {
    const verdict = judgeGap(read, space, at, high);
    const width = words(approximate(high.hi) - read.lower, 3);
    say("gap", verdict, verdict === "refused" ? `the gap of ${width} is wider than CERTIFIED promises` : `the gap is ${width}${verdict === "proved" ? ", as CERTIFIED promises" : "; whether CERTIFIED allows it depends on what happens without payments"}`);
  }
  if (read.robust) say("robust", "not checked", "that every equilibrium keeps the budget is not checked here");
}

function judgeConsistency({ goal, eq, offers, budget, objective, lower, status }, say) {
  const same = (a, b) => a.every((v, k) => v === b[k]), total = (values) => values.reduce((p, q) => p + q, 0);
  const problem = budget !== goal.budget ? `the budget ${budget} is not the one asked for, ${goal.budget}`
    : Number.isNaN(objective) || Number.isNaN(lower) ? "the objective or the lower bound is not a number"
    : !same(offers.prices, eq.payments) ? "the payments are not the prices that are offered"
    : !same(offers.caps, eq.caps) ? "the caps are not those that are offered"
    : !same(offers.retainers, eq.retainers) ? "the retainers are not those that are offered"
    : offers.most !== undefined && !(Math.abs(offers.most - total(offers.prices.map((p, k) => p * offers.caps[k])) - total(offers.retainers)) <= 2e-12 * Math.abs(offers.most)) ? "the offers cannot cost what is stated"
    : eq.x.some((v, k) => v > eq.caps[k]) ? "somebody takes part with more than its cap"
    : status === "CERTIFIED" && !Number.isFinite(lower) ? "it says CERTIFIED without a lower bound" : null;
  return say("numbers", problem === null ? "proved" : "refused", problem ?? "the parts of the file agree with each other");
}

function judgeEquilibrium({ game, eq, offers }, space, at, say) {
  const gains = firstWhoGains(space, at);
  say("equilibrium", gains < 0 ? "proved" : "refused",
    gains < 0 ? "no client gains more than a billionth of its stakes by deviating" : `client ${game.who(gains)} may gain more than a billionth of its stakes by deviating`);
  const regret = regretOf(space, at), unit = larger([...space.costs, ...at.p].reduce(larger), mul(space.lambda, space.scale));
  judgeNear("regret", eq.regret, regret, unit, 1e-12, say);
  judgeNear("residual", eq.residual, residualOf(space, at), UNIT, 1e-9, say);
  if (eq.uniqueness !== "UNKNOWN") {
    const full = eq.x.every((v, k) => v === eq.caps[k]), eager = at.slope.every((slope, k) => eq.caps[k] === 0 || slope.lo > 0n);
    if (eq.uniqueness === "UNIQUE" && full && eager) say("uniqueness", "proved", "it is the only equilibrium: everybody would rather bring more than is taken");
    else if (full && eager) say("uniqueness", "refused", "it is the only equilibrium, and the file says otherwise");
    else say("uniqueness", "not checked", `how many equilibria there are (the file says ${eq.uniqueness}) is not checked here`);
  }
  if (eq.face !== null) say("face", "not checked", "the set of equilibria that it belongs to is not checked here");
}

function judgeNear(what, stated, found, unit, tolerance, say) {
  const slack = add(mul(exact(1e-6), found), mul(exact(tolerance), unit));
  const fits = Number.isFinite(stated) && stated >= 0 && exact(stated).lo >= found.lo - slack.hi && exact(stated).hi <= found.hi + slack.hi;
  say(what, fits ? "proved" : "refused", fits ? `the stated ${what} is that of the profile` : `the stated ${what}, ${stated}, is not that of the profile, ${words(middle(found), 4)}`);
}

/** Spend, loss, total and objective; returns the objective that was derived. */
function judgeNumbers({ goal, offers, objective }, space, at, say) {
  const retained = sum(offers.retainers.map(exact)), paid = add(at.spend, retained), digits = exact(1 + 1e-12);
  const cost = offers.kind === "linear" ? at.spend : add(dot(offers.prices.map(exact), offers.caps.map(exact)), retained);
  const kept = goal.budget === Infinity || cost.hi <= mul(exact(goal.budget), digits).hi;
  say("spend", kept ? "proved" : "refused", kept ? `the spend is ${words(middle(cost))}${goal.budget < Infinity ? `, within the budget ${words(goal.budget)}` : ""}` : `the spend is ${words(middle(cost))}, more than the budget ${words(goal.budget)}`);
  const low = goal.max_loss === Infinity || at.loss.lo <= mul(exact(goal.max_loss), digits).hi;
  say("loss", low ? "proved" : "refused", low ? `the server's loss is ${words(middle(at.loss))}` : `the server's loss is ${words(middle(at.loss))}, above the largest one allowed, ${words(goal.max_loss)}`);
  const enough = at.S.hi >= mul(exact(goal.min_total), exact(1 - 1e-12)).lo;
  say("total", enough ? "proved" : "refused", `${words(100 * middle(at.S), 4)}% of the remaining data takes part${enough ? "" : `, less than the floor ${words(goal.min_total)}`}`);
  const value = add(mul(exact(goal.loss_weight), at.loss), mul(exact(goal.payment_weight), paid));
  const slack = mul(exact(1e-9), interval(0n, most(value.hi, -value.lo))).hi;
  const stated = Number.isFinite(objective) ? exact(objective) : null, agrees = stated !== null && stated.lo >= value.lo - slack && stated.hi <= value.hi + slack;
  say("objective", agrees ? "proved" : "refused", agrees ? `the objective is ${words(middle(value))}` : `the objective is ${words(middle(value))}, not ${objective} as stated`);
  return value;
}

function judgeOutside({ game, offers, outside }, space, at, say) {
  const bad = outside.findIndex((o, k) => {
    if (o === -Infinity) return false;
    const drift = mul(space.lambda, add(at.squares[k], div(space.a, at.S))), own = exact(o), size = larger(own, neg(own));
    const utility = sub(sub(add(mul(at.p[k], at.x[k]), exact(offers.retainers[k])), mul(space.costs[k], at.x[k])), drift);
    return sub(own, utility).lo > mul(exact(1e-12), larger(larger(space.costs[k], drift), size)).hi;
  });
  say("outside", bad < 0 ? "proved" : "refused", bad < 0 ? "no client is better off outside" : `client ${game.who(bad)} is better off outside`);
}

/** Whether the stated bound is proved by the certificate. */
function judgeBound({ game, goal, offers, outside, lower, certificate }, space, high, say, progress) {
  if (lower === -Infinity) { say("bound", "proved", "the file claims no bound"); return false; }
  const refuse = (said) => say("bound", "refused", said);
  if (lower === Infinity || exact(lower).lo > high.hi) return refuse(`the lower bound ${lower} lies above the objective`);
  if (certificate === null) return refuse("the lower bound comes without a certificate");
  const kind = word(field(certificate, "kind", "the certificate"), ["linear", "capped", "contract"], "the kind of the certificate");
  if (kind !== offers.kind) return refuse(`the certificate is for ${kind} offers, and these are ${offers.kind}`);
  if (kind === "contract") { say("bound", "not checked", "bounds for contracts are not checked here"); return false; }
  try {
    const found = kind === "linear" ? checkLinear(game, goal, space, certificate, progress) : checkCapped(game, goal, space, outside, certificate, progress);
    if (lower > Math.max(found.lower, 0)) return refuse(`the certificate proves ${found.lower}, not the bound ${lower} that is stated`);
    const what = kind === "linear" ? "no payments" : "no plan";
    return say("bound", "proved", `${what} within the limits reaches an objective below ${lower >= 0 ? fewer(exact(lower).lo) : words(lower)} (${found.leaves} leaves)`);
  } catch (error) {
    if (error instanceof NotProved) return refuse(`the certificate does not prove the lower bound: ${error.message}`);
    if (error instanceof Unable) { say("bound", "not checked", error.message); return false; }
    throw error;
  }
}

// ------------------------------------------------------------------ on the command line

const HEADLINES = {
  proved: "PROVED: everything that this file claims holds.", refused: "REFUSED: a claim of this file does not hold, or is not proved.",
  "not checked": "INCOMPLETE: what was checked holds, but some claims were not checked.", unreadable: "UNREADABLE: nothing was checked.",
};
const EXIT = { proved: 0, refused: 1, unreadable: 2, "not checked": 3 };

if (typeof process !== "undefined" && process.versions?.node && process.argv[1]) {
  const { existsSync, readFileSync, realpathSync } = await import("node:fs"), { fileURLToPath } = await import("node:url");
  if (existsSync(process.argv[1]) && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
    let found = null;
    try {
      found = check(readFileSync(process.argv[2] ?? "", "utf8"));
    } catch {
      console.error("usage: node check.mjs solution.json");
      process.exit(2);
    }
    if (process.argv[3] === "--json") console.log(JSON.stringify(found));
    else for (const line of [HEADLINES[found.verdict], ...found.lines.map((l) => `  ${l.verdict.padEnd(12)}${l.what.padEnd(13)}${l.said}`)]) console.log(line);
    process.exit(EXIT[found.verdict]);
  }
}
