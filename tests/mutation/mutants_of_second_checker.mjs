// Breaks the second checker once in each place and asks whether the files of tests/forgeries or the tests inside it notice.
// Started by mutants_of_second_checker.py, which hands it the files. Mutants run in memory, in a worker that is replaced when one hangs.

import { readFileSync } from "node:fs";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
import { audible, changed, failure, inside, slipped } from "../judging/second_checker.mjs";

//: What is put in the place of what.
const CHANGES = [
  [/\badd\(/g, "sub("], [/\bsub\(/g, "add("], [/\blarger\(/g, "smaller("], [/\bsmaller\(/g, "larger("], [/\bpositive\(/g, "("], [/\bneg\(/g, "("], [/\bsquare\(/g, "("],
  [/\bfloorShift\(/g, "ceilShift("], [/\bceilShift\(/g, "floorShift("], [/\bfloorDiv\(/g, "ceilDiv("], [/\bceilDiv\(/g, "floorDiv("], [/\.lo\b/g, ".hi"], [/\.hi\b/g, ".lo"],
  [/\bhalf\(/g, "("], [/\bquarter\(/g, "("], [/\bleast\(/g, "most("], [/\bmost\(/g, "least("], [/ <= /g, " < "], [/ < /g, " <= "], [/ >= /g, " > "], [/ > /g, " < "], [/ > /g, " >= "],
  [/ && /g, " || "], [/ \|\| /g, " && "], [/, 2n\)/g, ", 1n)"], [/, 3n\)/g, ", 2n)"], [/, 4n\)/g, ", 3n)"], [/ !== /g, " === "], [/ === /g, " !== "], [/\bZERO\b/g, "UNIT"], [/\bUNIT\b/g, "ZERO"],
  [/ \+ /g, " - "], [/ - /g, " + "], [/!(?=[a-zA-Z(])/g, ""], [/\btrue\b/g, "false"], [/\bfalse\b/g, "true"], [/\bMath\.min\(/g, "Math.max("], [/\bMath\.max\(/g, "Math.min("],
  [/\.some\(/g, ".every("], [/\.every\(/g, ".some("], [/\[0\]/g, "[1]"], [/\[1\]/g, "[0]"],
];
//: Functions that no verdict depends on: words, progress, and a guess that is judged afterwards.
const NOT_MATTERING = ["approximate", "middle", "words", "fewer", "shown", "seldom", "unpaidPoint", "said"];

/** Every place that can be broken: where it begins and ends, what is put there, and which function it is in. */
export function sites(text) {
  const found = [];
  let offset = 0, name = "";
  for (const line of text.split(/(?<=\n)/)) {
    const head = /^(?:export )?function (\w+)|^const (\w+) = \(/.exec(line) ?? /^ {2}const (\w+) = (?:\(.*\)|\w+) => \{$/.exec(line.trimEnd());
    if (head) name = head[1] ?? head[2];
    const judged = !NOT_MATTERING.includes(name) && !/^\s*(\/\/|\*|\/\*\*|function |export function |const \w+ = \([\w, ]*\) => \{$|say\()/.test(line);
    if (judged) {
      // texts, comments and what only the tests hear are left alone; what an error says too, but not when it is raised
      const blank = (m) => " ".repeat(m.length);
      const code = line.replace(/\/\*<\*\/.*?\/\*>\*\//g, blank).replace(/\/\*.*?\*\//g, blank).replace(/\/\[\\p.*?\/g?u/g, blank).replace(/`[^`]*`|"[^"]*"/g, blank)
        .replace(/\b(BadFile|Unable|NotProved)\(.*?\)(?=[;,]|$)/g, blank).replace(/\bsay\(.*$/g, blank).replace(/ \/\/ .*/g, blank);
      for (const [pattern, now] of CHANGES) for (const m of code.matchAll(pattern)) found.push({ start: offset + m.index, end: offset + m.index + m[0].length, now, was: m[0], name });
    }
    offset += line.length;
  }
  return found.sort((a, b) => a.start - b.start || (a.now < b.now ? -1 : 1));
}

/** Who notices a mutant: the tests inside, an honest file, a forgery, or nobody (null). */
function noticed(text, { honest, forged }) {
  const inner = failure(text);
  if (inner !== null) return ["inside", inner];
  for (const file of honest) {
    const why = changed(text, file.text, file);
    if (why !== null) return [why.startsWith("numbers") ? "numbers" : why.startsWith("number ") ? "bounds" : "honest", `${file.name}: ${why}`];
  }
  const checker = inside(text);
  for (const file of forged) {
    const why = slipped(checker, file);
    if (why !== null) return ["forgeries", `${file.name}: ${why}`];
  }
  return null;
}

if (!isMainThread) {
  const { text, files } = workerData;
  parentPort.on("message", ({ start, end, now }) => {
    let answer;
    try { answer = noticed(text.slice(0, start) + now + text.slice(end), files); } catch (error) { answer = ["error", String(error.message).slice(0, 80)]; }
    parentPort.postMessage(answer);
  });
} else {
  const { source, files, mutants, seconds, equivalent } = JSON.parse(readFileSync(process.argv[2], "utf8")), text = audible(readFileSync(source, "utf8"));
  const whole = noticed(text, files);
  if (whole !== null) throw new Error(`the checker as it is: ${whole.join(", ")}`);
  // the same places every time: every so many of them
  const all = sites(text), share = mutants ? Math.max(1, all.length / mutants) : 1, chosen = all.filter((_, i) => Math.floor(i / share) !== Math.floor((i - 1) / share));
  const lineOf = (at) => text.slice(text.lastIndexOf("\n", at - 1) + 1, text.indexOf("\n", at)).replace(/\/\*<\*\/.*?\/\*>\*\/ /g, "").trim();
  const count = {}, survivors = [], used = new Set();
  let worker = null;
  let heard = null, timer = null;
  const start = () => {
    const made = new Worker(new URL(import.meta.url), { workerData: { text, files }, resourceLimits: { maxOldGenerationSizeMb: 512 } });
    made.on("message", (answer) => heard(answer));
    made.on("error", () => heard("dies"));
    return made;
  };
  for (const site of chosen) {
    worker ??= start();
    const answer = await new Promise((resolve) => {
      heard = resolve;
      timer = setTimeout(() => resolve("hangs"), seconds * 1000);
      worker.postMessage(site);
    });
    clearTimeout(timer);
    if (typeof answer === "string") { await worker.terminate(); worker = null; }
    let who = typeof answer === "string" ? answer : answer === null ? "nobody" : answer[0];
    if (who === "nobody") {
      const line = lineOf(site.start), begin = text.lastIndexOf("\n", site.start - 1) + 1, before = text.slice(begin, site.start).replace(/\/\*<\*\/.*?\/\*>\*\/ /g, "").trimStart();
      const same = equivalent.findIndex((e) => e.function === site.name && e.was === site.was.trim() && e.now === site.now.trim() && stands(e.at, before, text.slice(site.end)));
      if (same >= 0) { who = "equivalent"; used.add(same); } else survivors.push({ function: site.name, was: site.was.trim(), now: site.now.trim(), before: before.slice(-40), after: text.slice(site.end, text.indexOf("\n", site.end)).slice(0, 40), line });
    }
    count[who] = (count[who] ?? 0) + 1;
  }
  await worker?.terminate();
  console.log(JSON.stringify({ places: all.length, tried: chosen.length, count, survivors, unused: equivalent.filter((_, i) => !used.has(i)) }));
}

/** Whether the text around a change is that of an entry, where [[]] stands for what was changed. */
function stands(at, before, after) {
  const [left, right] = at.split("[[]]");
  return before.endsWith(left) && after.startsWith(right);
}
