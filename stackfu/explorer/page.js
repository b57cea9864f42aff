"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { game, clients, groups, stops, lines, forgotten } = data;
  const $ = (id) => document.getElementById(id);
  const currency = game.currency ? ` ${game.currency}` : "", inUnit = (name) => name + (currency && ` (${game.currency})`);
  const slider = $("budget"), typed = $("typed"), outside = $("outside"), tip = $("tip");
  const shown = new Set(); // names of the comparison lines that are switched on
  const colours = { uniform: ["var(--uniform)", "2 4"], haipo: ["var(--haipo)", "8 4"], capped: ["var(--capped)", "10 3 2 3"] };

  const digits = (value, n = 5) => {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const text = Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7 ? value.toExponential(n - 1) : value.toPrecision(n);
    return String(Number(text));
  };
  // a bound is rounded away from the claim: what is read is still proved
  const towards = (round) => (value, n = 5) => {
    if (value === null || value === 0) return digits(value, n);
    const unit = 10 ** (n - 1 - Math.floor(Math.log10(Math.abs(value))));
    return digits(round(value * unit) / unit, n);
  };
  const down = towards(Math.floor), up = towards(Math.ceil);
  const percent = (value) =>
    value > 0 && value < 5e-5 ? "<0.01%" : value === 0 ? "0%" : (100 * value).toFixed(value < 0.0995 ? 2 : 1) + "%";

  // samples that take part are rarely whole: from ten up they are rounded
  const used = (value) => (value >= 10 ? Math.round(value).toLocaleString("en") : digits(value, 2));

  // samples are counted, unless they are weights
  const amount = (value) => (Number.isInteger(value) ? String(value) : digits(value, 6));

  // every shown number carries its exact value, for people who inspect it and for tests
  const put = (id, value, text) => {
    const element = $(id);
    element.textContent = text;
    element.dataset.value = value === null ? "" : String(value);
  };

  // ------------------------------------------------------------------ drawing

  const svg = (name, attributes = {}, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return element;
  };

  const ticks = (low, high, count) => {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
    return found;
  };

  // axes in pixels of the place they are drawn in, so that text has the same size on a phone
  const frame = (place, { x, y, xLabel, yLabel, label, above = 0, xFormat = (v) => digits(v, 3), yFormat = (v) => digits(v, 3) }) => {
    const width = Math.max(place.clientWidth, 240), height = above + Math.max(260, Math.min(340, width * 0.62));
    const left = 62, right = 14, top = 26 + above, bottom = 42;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": label });
    const X = (v) => left + ((v - x[0]) / (x[1] - x[0])) * (width - left - right);
    const Y = (v) => height - bottom - ((v - y[0]) / (y[1] - y[0])) * (height - top - bottom);
    for (const v of ticks(x[0], x[1], width < 420 ? 4 : 6)) {
      root.append(svg("line", { x1: X(v), x2: X(v), y1: top, y2: height - bottom, stroke: "var(--grid)" }));
      root.append(svg("text", { x: X(v), y: height - bottom + 16, "text-anchor": "middle" }, xFormat(v)));
    }
    for (const v of ticks(y[0], y[1], 5)) {
      root.append(svg("line", { x1: left, x2: width - right, y1: Y(v), y2: Y(v), stroke: "var(--grid)" }));
      root.append(svg("text", { x: left - 10, y: Y(v) + 4, "text-anchor": "end" }, yFormat(v)));
    }
    root.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xLabel));
    root.append(svg("text", { x: 2, y: 13 }, yLabel));
    place.replaceChildren(root);
    return { root, X, Y, left, right: width - right, top, bottom: height - bottom };
  };

  const span = (values, margin = 0.08) => {
    let low = Math.min(...values), high = Math.max(...values);
    if (high === low) { const pad = Math.abs(high) || 1; low -= pad / 2; high += pad / 2; }
    const pad = margin * (high - low);
    return [low - pad, high + pad];
  };

  const line = (points, { X, Y }) => points.map(([a, b], i) => `${i ? "L" : "M"}${X(a).toFixed(2)} ${Y(b).toFixed(2)}`).join("");

  const arc = (cx, cy, r, share) => {
    if (share >= 1) return `M${cx} ${cy - r}A${r} ${r} 0 1 1 ${cx - 0.01} ${cy - r}Z`;
    const angle = 2 * Math.PI * share, x = cx + r * Math.sin(angle), y = cy - r * Math.cos(angle);
    return `M${cx} ${cy - r}A${r} ${r} 0 ${share > 0.5 ? 1 : 0} 1 ${x} ${y}`;
  };

  // a mark that tells its story on hover, on touch and on keyboard focus
  const mark = (words, ...shapes) => {
    const group = svg("g", { class: "mark", tabindex: "0", role: "img", "aria-label": words.replaceAll("\n", ", ") });
    group.append(...shapes);
    const show = () => {
      const box = group.getBoundingClientRect();
      tip.textContent = words;
      tip.hidden = false;
      const size = tip.getBoundingClientRect();
      const across = Math.min(Math.max(8, box.left + box.width / 2 - size.width / 2), innerWidth - size.width - 8);
      const above = box.top - size.height - 8;
      tip.style.left = `${across}px`;
      tip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
    };
    const hide = () => { tip.hidden = true; };
    group.tell = show;
    for (const event of ["pointerenter", "focus"]) group.addEventListener(event, show);
    for (const event of ["pointerleave", "blur"]) group.addEventListener(event, hide);
    return group;
  };

  // ------------------------------------------------------------------ who would leave

  // a client leaves if what it has outside exceeds its utility by more than rounding of its stakes: the library's own rule
  const whoLeaves = (stop) => {
    if (!clients) return null;
    const everybody = outside.value.trim() === "" ? null : Number(outside.value);
    if (everybody === null && !data.outside) return null;
    return clients.name.map((_, k) => {
      const apart = everybody === null ? data.outside[k] : everybody;
      return apart !== null && apart - stop.utilities[k] > game.reluctant * (clients.cost[k] + Math.abs(apart));
    });
  };

  const signed = (value, n = 4) => (value > 0 ? "+" : "") + digits(value, n);

  // ------------------------------------------------------------------ the map

  const largestShare = clients ? Math.max(...clients.share) : 0;
  const pointing = {
    right: (x, y) => `M${x + 9} ${y}l-10 -6v12Z`, left: (x, y) => `M${x - 9} ${y}l10 -6v12Z`, up: (x, y) => `M${x} ${y - 9}l-6 10h12Z`,
  };
  const largestPayment = clients ? Math.max(1e-300, ...stops.flatMap((stop) => stop.payments)) : 0;

  // long names lose their middle; one that would then look like another stays whole
  const briefly = (names) => {
    const short = names.map((name) => (name.length > 20 ? `${name.slice(0, 10)}…${name.slice(-9)}` : name));
    return names.map((name, i) => (short.indexOf(short[i]) === short.lastIndexOf(short[i]) ? short[i] : name));
  };

  // names lie above all circles where they cover neither circles nor other names, most important first; a name without a free
  // place is left out, and the mark tells it on hover. The mark itself tells names to those who cannot see
  const writeNames = (axes, marks) => {
    const taken = marks.map(({ cx, cy, r }) => ({ left: cx - r, right: cx + r, top: cy - r, bottom: cy + r }));
    const common = (low, high, from, to) => Math.max(0, Math.min(high, to) - Math.max(low, from));
    const covered = (box) => (box.left < 0 || box.right > axes.right + 10 || box.top < axes.top || box.bottom > axes.bottom + 5
      ? Infinity : taken.reduce((sum, t) => sum + common(box.left, box.right, t.left, t.right) * common(box.top, box.bottom, t.top, t.bottom), 0));
    const words = briefly(marks.map((m) => m.words));
    const order = marks.map((_, i) => i).sort((a, b) => marks[b].weight - marks[a].weight);
    for (const i of order) {
      const { cx, cy, r, style, value, forced } = marks[i], said = value ? `${words[i]} (${value})` : words[i];
      const text = svg("text", { class: "name", style, "aria-hidden": "true" }, said);
      axes.root.append(text);
      const width = text.getComputedTextLength() + 2, d = 0.71 * r + 3;
      const places = [
        [cx + r + 4, cy + 4, "start"], [cx - r - 4, cy + 4, "end"], [cx, cy - r - 4, "middle"], [cx, cy + r + 13, "middle"],
        [cx + d, cy - d, "start"], [cx + d, cy + d + 8, "start"], [cx - d, cy - d, "end"], [cx - d, cy + d + 8, "end"],
        ...(forced ? [1, 2, 3, 4, 5].flatMap((n) => [[cx - r - 4, cy + 4 + 14 * n, "end"], [cx - r - 4, cy + 4 - 14 * n, "end"], [cx + r + 4, cy + 4 + 14 * n, "start"]]) : []),
      ].map(([x, y, anchor]) => {
        const left = x - { start: 0, middle: width / 2, end: width }[anchor];
        const box = { left, right: left + width, top: y - 11, bottom: y + 3 };
        return { x, y, anchor, box, cover: covered(box) };
      });
      const free = places.find((place) => place.cover === 0) ?? (forced ? places.reduce((a, b) => (b.cover < a.cover ? b : a)) : null);
      if (!free) { text.remove(); continue; }
      taken.push(free.box);
      if (places.indexOf(free) > 7) { // too far off to be seen as this mark's name without a line
        const x = Math.min(Math.max(cx, free.box.left), free.box.right), y = free.y > cy ? free.box.top : free.box.bottom;
        axes.root.append(svg("line", { x1: cx, y1: cy, x2: x, y2: y, stroke: "var(--soft)", "stroke-width": 0.8 }));
      }
      for (const [key, at] of [["x", free.x], ["y", free.y], ["text-anchor", free.anchor]]) text.setAttribute(key, at);
    }
  };

  const drawForgotten = (axes) =>
    forgotten.map((gone) => {
      const cx = axes.X(gone.distance), cy = axes.Y(gone.share);
      const group = mark(
        `Client ${gone.name}: to be forgotten\n${amount(gone.samples)} samples`,
        svg("circle", { class: "halo", cx, cy, r: 8, fill: "none", stroke: "var(--soft)", "stroke-dasharray": "3 2", "stroke-width": 1.5 }),
        svg("path", { d: `M${cx - 4} ${cy - 4}l8 8m0 -8l-8 8`, stroke: "var(--soft)", "stroke-width": 1.5 }),
      );
      group.dataset.forgotten = gone.name;
      axes.root.append(group);
      return { cx, cy, r: 8, words: String(gone.name), style: "font-style: italic", weight: 1 };
    });

  const drawParticipation = (stop) => {
    if (groups) { drawGroups(stop); return; }
    const place = $("participation"), leaving = whoLeaves(stop);
    // clients that would squeeze all others stand at the edge, with their values
    const [farAcross, farUp] = clients.far, near = (values, far) => values.filter((_, k) => !far[k]);
    const axes = frame(place, {
      x: span([...near(clients.distance, farAcross), ...forgotten.map((gone) => gone.distance)], 0.12),
      y: [0, 1.18 * Math.max(...near(clients.share, farUp), ...forgotten.map((gone) => gone.share))],
      xLabel: `distance to ${game.distance_to}`, yLabel: "share of the remaining data",
      yFormat: (v) => `${Math.round(100 * v)}%`, label: "Clients by distance and share of data",
    });
    const order = clients.name.map((_, k) => k).sort((a, b) => stop.payments[b] - stop.payments[a]);
    const marks = order.map((k) => {
      const inside = (at, low, high) => Math.min(Math.max(at, low), high);
      const cx = inside(axes.X(clients.distance[k]), axes.left + 12, axes.right - 12);
      const cy = inside(axes.Y(clients.share[k]), axes.top + 12, axes.bottom);
      const edge = farAcross[k] ? (axes.X(clients.distance[k]) > cx ? "right" : "left") : farUp[k] ? "up" : null;
      const r = edge ? 9 : 6 + 20 * Math.sqrt(stop.payments[k] / largestPayment), share = stop.participation[k];
      const words =
        `Client ${clients.name[k]}: ${amount(clients.samples[k])} samples\n` +
        `takes part with ${percent(share)}, ${used(stop.used[k])} samples\npayment ${digits(stop.payments[k], 4)} at cost ${digits(clients.cost[k], 4)}` +
        `, receives ${digits(stop.receives[k], 4)}\n` +
        `utility ${digits(stop.utilities[k], 4)}${leaving && leaving[k] ? ": would leave" : ""}\n` +
        `predicted change of its loss ${signed(stop.change[k])}${game.calibrated ? "" : " (a guess)"}\n` +
        `stays out below ${pay(stop.out_below[k], k)}, takes part fully above ${pay(stop.full_above[k], k)}`;
      const group = mark(
        words,
        svg("circle", { class: "halo", cx, cy, r, fill: "var(--accent-soft)", "fill-opacity": 0.75, stroke: "var(--line)" }),
        ...(edge ? [svg("path", { d: pointing[edge](cx, cy), fill: "var(--bound)", "data-edge": edge })] : []),
        svg("path", { d: share > 0 ? arc(cx, cy, r, share) : "", fill: "none", stroke: "var(--accent)", "stroke-width": 4 }),
      );
      if (leaving && leaving[k]) {
        group.append(svg("circle", {
          class: "leaves", cx, cy, r: r + 5, fill: "none", stroke: "var(--bound)", "stroke-width": 2, "stroke-dasharray": "4 3",
        }));
      }
      group.dataset.client = clients.name[k];
      axes.root.append(group);
      const value = edge === null ? null : edge === "up" ? percent(clients.share[k]) : digits(clients.distance[k], 3);
      return {
        cx, cy, r: leaving && leaving[k] ? r + 6 : r, words: String(clients.name[k]), style: "fill: var(--ink)", value, forced: edge !== null,
        weight: edge !== null ? 2 : Math.max(stop.payments[k] / largestPayment, clients.share[k] / largestShare, leaving && leaving[k] ? 1 : 0),
      };
    });
    writeNames(axes, [...marks, ...drawForgotten(axes)]);
  };

  // too many clients for circles: what the middle 80% of each group does, and its median
  const drawGroups = (stop) => {
    const axes = frame($("participation"), {
      x: span(groups.flatMap((group) => group.distance), 0.06), y: [0, 1.05],
      xLabel: `distance to ${game.distance_to}`, yLabel: "takes part with",
      yFormat: (v) => `${Math.round(100 * v)}%`, label: "Participation in groups of clients by distance",
    });
    groups.forEach((group, i) => {
      const now = stop.groups[i], [, low, middle, high] = now.participation;
      const left = axes.X(group.distance[0]), right = Math.max(axes.X(group.distance[4]), left + 3);
      const box = mark(
        `Group ${group.name}: ${group.clients} clients, ${amount(group.samples)} samples\n` +
        `half of them take part with ${percent(middle)} or more, four in five with ${percent(low)} to ${percent(high)}\n` +
        `${now.out} stay out, ${now.full} take part fully\ntogether they receive ${digits(now.receives, 4)}` +
        (now.leaving === null ? "" : `\n${now.leaving} would leave`),
        svg("rect", {
          class: "halo", x: left + 1, width: Math.max(right - left - 2, 2), y: axes.Y(high), height: Math.max(axes.Y(low) - axes.Y(high), 2),
          fill: "var(--accent-soft)", stroke: "var(--accent)",
        }),
        svg("line", { x1: left + 1, x2: right - 1, y1: axes.Y(middle), y2: axes.Y(middle), stroke: "var(--accent)", "stroke-width": 3 }),
      );
      box.dataset.group = group.name;
      axes.root.append(box);
    });
  };

  // from 0, so that heights compare; an objective of one's own may be negative
  const lossAxis = () => {
    const values = stops.flatMap((stop) => [stop.objective, stop.lower_bound]).filter((v) => v !== null);
    for (const drawn of lines.filter((l) => shown.has(l.name))) values.push(...drawn.points.map((p) => p.server_loss).filter((v) => v !== null));
    const low = Math.min(0, ...values), high = Math.max(0, ...values);
    return [low - (low < 0 ? 0.08 * (high - low) : 0), high + 0.12 * (high - low || 1)];
  };

  const drawFrontier = (chosen) => {
    const place = $("frontier");
    const bounds = stops.filter((stop) => stop.lower_bound !== null);
    const entries = [
      ["certified payments", "var(--accent)", 2, 1, ""], ["proved out of reach", "var(--bound)", 10, 0.3, ""],
      ...lines.filter((l) => shown.has(l.name)).map((l) => [l.label, colours[l.name][0], 2, 1, colours[l.name][1]]),
    ];
    const axes = frame(place, {
      x: [0, 1.03 * Math.max(...stops.map((stop) => stop.budget), 1e-12)],
      y: lossAxis(),
      xLabel: inUnit("budget"), yLabel: data.proves, label: `${data.proves} against budget`, above: 18 * Math.ceil(entries.length / beside(place)),
    });
    const losses = stops.map((stop) => [stop.budget, stop.objective]);
    if (bounds.length) {
      // what is proved is a step per budget: a bound holds at every smaller budget, not between two bounds
      const corners = bounds.flatMap((stop, i) => [
        [i ? bounds[i - 1].budget : 0, stop.lower_bound], [stop.budget, stop.lower_bound],
      ]);
      const edge = line(corners, axes);
      const first = axes.X(0), last = axes.X(bounds[bounds.length - 1].budget);
      axes.root.append(svg("path", {
        d: `${edge}L${last} ${axes.bottom}L${first} ${axes.bottom}Z`, fill: "var(--bound)", "fill-opacity": 0.16,
        class: "proved",
      }));
    }
    for (const drawn of lines.filter((l) => shown.has(l.name))) {
      const [stroke, dash] = colours[drawn.name];
      const points = drawn.points.filter((point) => point.server_loss !== null);
      axes.root.append(svg("path", {
        d: line(points.map((point) => [point.budget, point.server_loss]), axes), fill: "none", stroke, "stroke-width": 2,
        "stroke-dasharray": dash, "data-line": drawn.name,
      }));
      for (const point of points) {
        axes.root.append(mark(
          `${drawn.label}, budget ${digits(point.budget)}\nserver loss ${digits(point.server_loss, 6)}\n` +
          `${percent(point.total)} of the data takes part\n${point.words}`,
          svg("circle", { class: "halo", cx: axes.X(point.budget), cy: axes.Y(point.server_loss), r: 3, fill: stroke, stroke: "var(--card)" }),
        ));
      }
    }
    axes.root.append(svg("path", { d: line(losses, axes), fill: "none", stroke: "var(--accent)", "stroke-width": 2 }));
    stops.forEach((stop, i) => {
      const words = `Budget ${digits(stop.budget)}\nserver loss ${digits(stop.server_loss, 6)}` +
        (!stop.telling ? "" : `\nno payments bring the ${data.proves} below ${down(stop.lower_bound, 6)}`);
      const now = i === chosen;
      const dot = mark(words, svg("circle", {
        class: "halo", cx: axes.X(stop.budget), cy: axes.Y(stop.objective), r: now ? 7 : 4,
        fill: now ? "var(--accent)" : "var(--card)", stroke: "var(--accent)", "stroke-width": 2,
      }));
      dot.addEventListener("click", () => choose(i));
      dot.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(i); slider.focus(); }
      });
      dot.dataset.stop = i;
      axes.root.append(dot);
    });
    legend(axes, entries, beside(place));
  };

  // above the drawing, so that no line runs through the words; two columns, on a phone one
  const beside = (place) => (place.clientWidth < 340 ? 1 : 2);
  const legend = (axes, entries, columns) => entries.forEach(([words, stroke, width, opacity, dash], i) => {
    const y = 31 + 18 * Math.floor(i / columns), x = i % columns ? (axes.left + axes.right) / 2 - 12 : 2;
    axes.root.append(svg("line", {
      x1: x, x2: x + 22, y1: y - 4, y2: y - 4, stroke, "stroke-width": width, "stroke-opacity": opacity, "stroke-dasharray": dash,
    }));
    axes.root.append(svg("text", { x: x + 28, y }, words));
  });

  const drawLevel = (stop) => {
    const place = $("level");
    if (!stop.curve.length) {
      place.textContent = groups ? "Not drawn for so many clients." : "All remaining clients own the same data, so there is no level function to draw.";
      return;
    }
    const top = Math.max(...stop.curve.map((point) => point[1]));
    const floor = Math.max(-1.2 * top, Math.min(-0.1 * top, 1.1 * Math.min(...stop.curve.map((point) => point[1]))));
    const axes = frame(place, {
      x: [0, stop.curve[stop.curve.length - 1][0]], y: [floor, 1.1 * top],
      xLabel: "total participation s", yLabel: "level t(s)", xFormat: (v) => `${digits(100 * v, 3)}%`,
      label: "Level function and equilibria",
    });
    const clip = svg("clipPath", { id: "inside" });
    clip.append(svg("rect", { x: axes.left, y: axes.top, width: axes.right - axes.left, height: axes.bottom - axes.top }));
    axes.root.append(clip);
    axes.root.append(svg("line", { x1: axes.left, x2: axes.right, y1: axes.Y(0), y2: axes.Y(0), stroke: "var(--soft)" }));
    axes.root.append(svg("path", {
      d: line(stop.curve, axes), fill: "none", stroke: "var(--accent)", "stroke-width": 2.5, "clip-path": "url(#inside)",
    }));
    stop.equilibria.forEach((eq, i) => {
      const here = Math.abs(eq.total - stop.total) <= 1e-6 * stop.total;
      const words = `Equilibrium ${i + 1} of ${stop.equilibria.length}\n${percent(eq.total)} of the data takes part\n` +
        `server loss ${digits(eq.server_loss, 6)}${here ? "\nthis one is shown" : ""}`;
      const dot = mark(words, svg("circle", {
        class: "halo", cx: axes.X(eq.total), cy: axes.Y(0), r: 7, "stroke-width": 2.5, stroke: "var(--bound)",
        fill: here ? "var(--bound)" : "var(--card)",
      }));
      dot.dataset.total = eq.total;
      axes.root.append(dot);
    });
  };

  // ------------------------------------------------------------------ the table: what is shown is what is saved

  const four = (v) => digits(v, 4), middle = (q) => `${digits(q[2], 3)} (${digits(q[1], 3)} to ${digits(q[3], 3)})`;
  const middlePercent = (q) => `${percent(q[2])} (${percent(q[1])} to ${percent(q[3])})`;
  const guess = game.calibrated ? "" : " (a guess)";
  // what rounding left of nothing reads as nothing; saved tables keep every digit
  const isPaid = (value, k) => value > game.nothing * clients.cost[k];
  const pay = (value, k) => (isPaid(value, k) ? four(value) : "0");
  const without = (value, k) => (value > game.nothing * groups[k].cost[4] ? value : 0);

  // a column of a stop at which it is not known
  const unknown = clients ? clients.name.map(() => null) : [];

  // [name of the cell, heading, values at a stop, how a value reads]
  const columns = groups ? [
    ["group", "group", () => groups.map((g) => g.name), String],
    ["clients", "clients", () => groups.map((g) => g.clients), String],
    ["samples", "samples", () => groups.map((g) => g.samples), amount],
    ["distance", "distance", () => groups.map((g) => g.distance), middle],
    ["cost", inUnit("cost"), () => groups.map((g) => g.cost), middle],
    ["payment", inUnit("payment"), (stop) => stop.groups.map((g) => g.payments), (q, k) => middle(q.map((v) => without(v, k)))],
    ["participation", "takes part", (stop) => stop.groups.map((g) => g.participation), middlePercent],
    ["used", "samples that take part", (stop) => stop.groups.map((g) => g.used_samples), used],
    ["receives", inUnit("receive together"), (stop) => stop.groups.map((g) => g.receives), (v, k) => four(without(v, k))],
    ["utility", inUnit("utility"), (stop) => stop.groups.map((g) => g.utilities), middle],
    ["change", `predicted change${guess}`, (stop) => stop.groups.map((g) => g.change), middle],
    ["out", "stay out", (stop) => stop.groups.map((g) => g.out), String],
    ["full", "fully in", (stop) => stop.groups.map((g) => g.full), String],
    ...(stops[0].groups[0].leaving === null ? [] : [["leaves", "would leave", (stop) => stop.groups.map((g) => g.leaving), String]]),
  ] : [
    ["client", "client", () => clients.name, String],
    ["samples", "samples", () => clients.samples, amount],
    ["distance", "distance", () => clients.distance, four],
    ["cost", inUnit("cost"), () => clients.cost, four],
    ["payment", inUnit("payment"), (stop) => stop.payments, pay],
    ["participation", "takes part", (stop) => stop.participation, percent],
    ["used", "samples that take part", (stop) => stop.used, used],
    ["receives", inUnit("receives"), (stop) => stop.receives, pay],
    ["utility", inUnit("utility"), (stop) => stop.utilities, four],
    ["change", `predicted change${guess}`, (stop) => stop.change, (v) => signed(v)],
    ["out_below", inUnit("out below"), (stop) => stop.out_below, pay],
    ["full_above", inUnit("full above"), (stop) => stop.full_above, pay],
    ["rate", `samples for ${inUnit(`${game.step} more`)}`, (stop) => stop.rates ?? unknown, (v) => (v === null ? "–" : signed(v, 3))],
    ...(stops.some((stop) => stop.values !== null) ? [
      ["value", "Shapley value", (stop) => stop.values ?? unknown, four],
      ["leave_one_out", "leave-one-out value", (stop) => stop.leave_one_out ?? unknown, (v) => signed(v)],
    ] : []),
  ];

  const tableAt = (stop) => {
    const leaving = whoLeaves(stop);
    const extra = leaving ? [["leaves", "would leave", () => leaving, (v) => (v ? "yes" : "no")]] : [];
    return [...columns, ...extra].map(([name, heading, values, words]) => ({ name, heading, values: values(stop), words }));
  };

  const fillTable = (stop) => {
    const table = tableAt(stop), marked = table.find((column) => column.name === "leaves");
    $("head").replaceChildren(...table.map((column) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = column.heading;
      return cell;
    }));
    $("rows").replaceChildren(...table[0].values.map((_, k) => {
      const row = document.createElement("tr");
      if (clients && marked && marked.values[k]) row.className = "leaves";
      table.forEach(({ name, values, words }, i) => {
        const value = values[k], cell = document.createElement(i === 0 ? "th" : "td");
        cell.dataset.name = name;
        cell.dataset.value = String(value);
        if (i === 0) cell.scope = "row";
        if (name === "participation" && clients) {
          cell.className = "bar";
          const bar = document.createElement("span");
          bar.style.setProperty("--share", `${100 * value}%`);
          bar.textContent = words(value, k);
          cell.append(bar);
        } else cell.textContent = words(value, k);
        row.append(cell);
      });
      return row;
    }));
    hintAtScrolling();
  };

  const hintAtScrolling = () => { $("swipe").hidden = $("scroll").scrollWidth <= $("scroll").clientWidth; };

  // ------------------------------------------------------------------ saving

  const save = (blob, name) => {
    const anchor = document.createElement("a");
    anchor.href = URL.createObjectURL(blob);
    anchor.download = name;
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(anchor.href), 10000);
  };
  const fileName = (what, ending) => `${what}-budget-${digits(stops[Number(slider.value)].budget)}.${ending}`;

  // full precision, quoted where a name needs it; of a group each quantile is a column
  const quoted = (value) => (/[",\n\r]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const csv = (stop) => {
    const wide = tableAt(stop).flatMap(({ name, values }) => Array.isArray(values[0])
      ? ["min", "10%", "median", "90%", "max"].map((level, i) => ({ name: `${name} ${level}`, values: values.map((q) => q[i]) }))
      : [{ name, values }]);
    const rows = wide[0].values.map((_, k) => wide.map((column) => quoted(column.values[k])).join(","));
    return [wide.map((column) => quoted(column.name)).join(","), ...rows].join("\r\n") + "\r\n";
  };

  // a drawing that stands alone: colours resolved, white or dark paper beneath, fonts named
  const standalone = (id) => {
    const drawn = $(id).querySelector("svg");
    if (!drawn) return null;
    const copy = drawn.cloneNode(true), style = getComputedStyle(document.documentElement);
    const [, , width, height] = drawn.getAttribute("viewBox").split(" ").map(Number);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.setAttribute("font-family", "system-ui, sans-serif");
    copy.setAttribute("font-size", "12");
    for (const text of copy.querySelectorAll("text")) if (!text.getAttribute("style")?.includes("fill")) text.setAttribute("fill", "var(--soft)");
    for (const group of copy.querySelectorAll("[tabindex]")) group.removeAttribute("tabindex");
    copy.prepend(svg("rect", { width, height, fill: "var(--card)" }));
    const text = new XMLSerializer().serializeToString(copy).replace(/var\((--[a-z-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
    return { text, width, height };
  };

  const savePicture = (id, kind) => {
    const picture = standalone(id);
    if (!picture) return;
    const blob = new Blob([picture.text], { type: "image/svg+xml" });
    if (kind === "svg") { save(blob, fileName(id, "svg")); return; }
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas"), scale = 2;
      canvas.width = scale * picture.width;
      canvas.height = scale * picture.height;
      const pen = canvas.getContext("2d");
      pen.scale(scale, scale);
      pen.drawImage(image, 0, 0, picture.width, picture.height);
      canvas.toBlob((png) => save(png, fileName(id, "png")), "image/png");
    };
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(picture.text);
  };

  // ------------------------------------------------------------------ a view as a link

  const fragment = () => {
    const state = new URLSearchParams();
    state.set("budget", typed.value === "" ? "0" : typed.value);
    if (shown.size) state.set("lines", [...shown].join(","));
    if (outside.value.trim() !== "") state.set("outside", outside.value);
    if ($("mathematics").open) state.set("mathematics", "open");
    return "#" + state.toString();
  };

  const readFragment = () => {
    const state = new URLSearchParams(location.hash.slice(1));
    const asked = Number(state.get("budget") ?? NaN), budget = asked >= 0 && Number.isFinite(asked) ? asked : stops[data.opening].budget;
    shown.clear();
    for (const name of (state.get("lines") ?? "").split(",")) if (lines.some((l) => l.name === name)) shown.add(name);
    for (const box of $("lines").querySelectorAll("input")) box.checked = shown.has(box.value);
    outside.value = Number.isFinite(Number(state.get("outside") ?? NaN)) ? state.get("outside") : "";
    $("mathematics").open = state.get("mathematics") === "open";
    typeBudget(budget);
  };

  // ------------------------------------------------------------------ the page

  // the largest stop within a budget: its payments are affordable
  const stopWithin = (budget) => {
    let best = 0;
    stops.forEach((stop, i) => { if (stop.budget <= budget * (1 + 1e-12)) best = i; });
    return best;
  };

  const choose = (i) => { slider.value = i; typed.value = String(stops[i].budget); render(); };
  const typeBudget = (budget) => { slider.value = stopWithin(budget); typed.value = String(budget); render(); };

  // between two stops the payments of the smaller are affordable, and the bound of the larger holds
  const sayBetween = (stop) => {
    const budget = Number(typed.value);
    if (typed.value === "" || !(budget >= 0)) { $("between").textContent = "Type a budget of 0 or more, or drag the slider."; return; }
    if (Math.abs(budget - stop.budget) <= 1e-12 * budget) { $("between").textContent = "Type a budget, drag, or use the arrow keys."; return; }
    const next = stops.find((other) => other.budget >= budget);
    $("between").textContent = `Shown is ${digits(stop.budget)}, the largest budget computed within ${digits(budget)}. ` +
      (next && next.lower_bound !== null
        ? `With ${digits(budget)} the best ${data.proves} lies between ${down(next.lower_bound)} and ${up(stop.objective)}: proved.`
        : "Larger budgets were not computed.");
  };

  const tooFew = (stop) => {
    const taking = clients ? stop.participation.filter((x) => x > 0).length : 1;
    return stop.used_samples < taking ? "Caution: less than one sample for each client that takes part, which is no data to train on. " +
      "Compare the units of budget and costs. " : "";
  };

  const plainWords = (stop) => {
    const unpaid = stops[0], share = stop.server_loss / unpaid.server_loss;
    if (stop.budget === 0) {
      return `No client is paid. ${percent(unpaid.total)} of the remaining data (${used(unpaid.used_samples)} samples) takes part all the same, ` +
        `and the server's loss, how far the model is from where it should be, is ${digits(unpaid.server_loss)}. ` +
        ({ "1, proved": "It is proved that the clients cannot settle in any other way.", "not all known": "Other outcomes are not excluded." }[unpaid.outcomes]
          ?? "The clients can settle in other ways too, shown under the mathematics.");
    }
    const paid = clients ? stop.receives.filter(isPaid).length : null;
    const change = Math.abs(share - 1) < 1e-9 ? "as without payments" : share < 1 ? `${percent(1 - share)} less than without payments`
      : `${percent(share - 1)} more than without payments`;
    const bound = stop.telling ? `It is proved that no payments within this budget bring the ${data.proves} below ${down(stop.lower_bound)}.`
      : stop.settled && stop.lower_bound !== null ? "It is proved that no payments do better by more than the gap that was asked for." : "";
    // what a search that ran out of time did not find says nothing about what money buys
    const proof = stop.status === "FAILED" ? "What these payments lead to could not be verified; better ones may exist."
      : stop.settled ? bound || "Whether other payments do better is not proved."
        : `The search was stopped before it was done: better payments within this budget may exist.${bound && " "}${bound}`;
    return `With a budget of ${digits(stop.budget)}${currency} the server pays ${digits(stop.spend)}${currency}` +
      (paid === null ? "" : ` to ${paid} of ${game.remaining} clients`) +
      `, and ${percent(stop.total)} of the remaining data (${used(stop.used_samples)} samples) takes part. The server's loss is ${digits(stop.server_loss)}, ${change}. ${proof}`;
  };

  const sayLeaving = (stop) => {
    const leaving = whoLeaves(stop);
    if (!leaving) { $("leave-words").textContent = "a utility outside the federation: type one, and they are marked"; return; }
    const who = clients.name.filter((_, k) => leaving[k]);
    $("leave-words").textContent = who.length === 0 ? "nobody would leave"
      : `${who.length} would leave at first: ${who.slice(0, 12).join(", ")}${who.length > 12 ? ", …" : ""}`;
  };

  // ------------------------------------------------------------------ the proof, checked again

  const proofs = JSON.parse($("proofs").textContent);
  let worker = null, shownProof = null;

  // the bound that is shown may have been proved at a larger budget: its proof is checked too
  const proofsOf = (i) => {
    const shows = stops[i].lower_bound, enough = (j) => proofs[j] !== null && shows !== null && proofs[j].lower_bound >= shows;
    const more = shows === null || enough(i) ? [] : stops.map((_, j) => j).filter((j) => j > i && enough(j)).slice(0, 1);
    return [i, ...more];
  };

  // a proof of other numbers than those of this page would prove nothing about it
  const strayFrom = (record, stop) => {
    const list = (value) => (Array.isArray(value) ? value : value.array), same = (a, b) => JSON.stringify(list(a)) === JSON.stringify(b);
    const { game: proved, payments, participation } = record.equilibrium, removed = list(proved.removed);
    const sizes = list(proved.sizes).filter((_, k) => !removed.includes(k));
    return !same(payments, stop.payments) ? "payments" : !same(participation, stop.participation) ? "participation"
      : !same(proved.costs, clients.cost) ? "costs" : !same(sizes, clients.samples) ? "amounts of data"
      : record.objective !== stop.objective || record.budget !== stop.budget ? "objective or budget" : null;
  };

  const near = (a, b) => Math.abs(a - b) <= 1e-9 * Math.max(Math.abs(a), Math.abs(b));

  const offerProof = (i) => {
    if (worker) { worker.terminate(); worker = null; }
    for (const id of ["check-progress", "verdict", "checked"]) $(id).hidden = true;
    $("check").disabled = proofs[i] === null;
    $("check-words").textContent = i === 0 ? "Without payments nothing was optimised: there is no proof to check. Choose a budget."
      : proofs[i] === null ? "The proofs are too large for this page: save the solution and run node check.mjs on it."
      : "A second program, which shares no code with the one that found these payments, derives everything again on your computer.";
  };

  const tellVerdict = (verdict, sentence, found = []) => {
    $("check-progress").hidden = true;
    $("check").disabled = false;
    $("verdict").hidden = false;
    $("verdict").dataset.verdict = verdict;
    $("verdict").textContent = sentence;
    $("checked").hidden = found.length === 0;
    $("checked").replaceChildren(...found.map((line) => {
      const item = document.createElement("li");
      item.dataset.verdict = line.verdict;
      item.dataset.sign = { proved: "✓", refused: "✗", "not checked": "–" }[line.verdict];
      item.textContent = `${line.said}.`;
      return item;
    }));
  };

  const conclude = (reports, i) => {
    const all = reports.flatMap((report) => report.lines), failed = all.find((line) => line.verdict === "refused");
    const shows = stops[i], own = reports[0].numbers ?? {};
    const stray = strayFrom(proofs[i], shows)
      ?? (own.loss !== undefined && !near(own.loss, shows.server_loss) ? "server loss" : own.spend !== undefined && !near(own.spend, shows.spend) ? "spend" : null)
      ?? (shows.lower_bound !== null && !proofsOf(i).some((j) => proofs[j].lower_bound >= shows.lower_bound) ? "bound" : null);
    if (failed) { tellVerdict("refused", `Refused: ${failed.said}.`, all); return; }
    if (stray) { tellVerdict("refused", `Refused: the ${stray} of this page is not that of its proof.`, all); return; }
    const left = all.filter((line) => line.verdict === "not checked"), bound = all.some((line) => line.what === "bound" && line.verdict === "proved");
    const claim = `nobody gains by deviating, the spend and the loss are those shown${bound ? ", and the bound holds" : ""}`;
    if (left.length === 0) tellVerdict("proved", `Proved on this computer: ${claim}.`, all);
    else if (left.every((line) => ["uniqueness", "face", "robust"].includes(line.what))) {
      tellVerdict("proved", `Proved on this computer: ${claim}. Not checked: whether the clients can settle in another way.`, all);
    } else tellVerdict("not checked", "Some claims were not checked; what was checked holds.", all);
  };

  const checkProof = () => {
    const i = Number(slider.value), order = proofsOf(i), reports = [];
    offerProof(i);
    $("check").disabled = true;
    $("check-progress").hidden = false;
    $("check-progress").removeAttribute("value");
    const code = JSON.parse($("checker").textContent) +
      "\nonmessage = ({ data }) => postMessage({ report: check(data, (done, of) => postMessage({ done, of })) });";
    const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    const mine = worker = new Worker(address);
    const next = () => mine.postMessage(JSON.stringify(proofs[order[reports.length]]));
    mine.onmessage = ({ data: { report, done, of } }) => {
      if (mine !== worker) return;
      if (!report) { $("check-progress").value = (reports.length + done / of) / order.length; return; }
      reports.push(report);
      if (reports.length < order.length) next();
      else { mine.terminate(); worker = null; URL.revokeObjectURL(address); conclude(reports, i); }
    };
    mine.onerror = () => tellVerdict("not checked", "This browser could not run the checker, so nothing was checked.");
    next();
  };

  const render = () => {
    const i = Number(slider.value), stop = stops[i];
    tip.hidden = true;
    put("budget-value", stop.budget, stop.budget === 0 ? "none" : digits(stop.budget));
    slider.setAttribute("aria-valuetext", `budget ${digits(stop.budget)}, server loss ${digits(stop.server_loss)}`);
    put("server_loss", stop.server_loss, digits(stop.server_loss));
    // without payments there is nothing to choose: known is how many outcomes there are
    $("bound-name").textContent = stop.budget === 0 ? "Outcomes without payments" : "No payments do better than";
    put("lower_bound", stop.lower_bound, stop.budget === 0 ? stop.outcomes : stop.lower_bound === null ? "nothing is proved" : down(stop.lower_bound));
    put("used_samples", stop.used_samples, `${used(stop.used_samples)} of ${used(game.remaining_samples)} samples`);
    put("spend", stop.spend, digits(stop.spend) + currency);
    put("total", stop.total, percent(stop.total));
    $("words").textContent = tooFew(stop) + plainWords(stop);
    sayBetween(stop);
    sayLeaving(stop);
    if (shownProof !== i) { shownProof = i; offerProof(i); }
    $("certificate").replaceChildren(...stop.certificate.map((sentence) => {
      const item = document.createElement("li");
      item.textContent = sentence;
      return item;
    }));
    $("capped-words").hidden = !shown.has("capped");
    drawParticipation(stop);
    drawFrontier(i);
    if ($("mathematics").open) drawLevel(stop);
    fillTable(stop);
    if (location.hash !== fragment()) history.replaceState(null, "", fragment());
  };

  const few = (names) => (names.length > 12 ? `${names.slice(0, 12).join(", ")} and ${names.length - 12} more` : names.join(", "));
  const removed = game.removed.length === 0 ? "nobody is to be forgotten"
    : `client${game.removed.length > 1 ? "s" : ""} ${few(game.removed)} ${game.removed.length > 1 ? "are" : "is"} to be forgotten`;
  $("story").textContent =
    `${game.clients} clients with ${amount(game.samples)} samples; ${removed}. The ${game.remaining} that remain own ` +
    `${amount(game.remaining_samples)} samples; to have them all take part fully costs ${digits(game.full_participation_price)}${currency}.`;
  document.querySelector("label[for=typed]").textContent = inUnit("Budget");
  $("guess").hidden = game.calibrated;
  $("guess").textContent = `How much loss a unit of drift makes (the constant C = ${digits(game.loss_constant)}) was not fitted to ` +
    "trainings: losses, utilities and predicted changes are guesses up to this factor. stackfu calibrate fits it.";
  $("map-words").textContent = groups
    ? `The ${game.remaining} clients in ${groups.length} groups by distance: the box holds the middle 80% of a group, the line is its median.`
    : "Each circle is a client: the larger, the higher its payment; the arc is the share of its data that takes part." +
      (forgotten.length ? " Crossed out: to be forgotten." : "");
  $("table-title").textContent = groups ? "Group by group" : "Client by client";
  $("legend").textContent =
    (groups ? "Median (10% to 90%) of each group. " : "") +
    "Cost and payment are for full participation, in proportion for less; receives is what is paid out. Predicted change: of the " +
    "client's loss against the model before forgetting" + (groups ? "." : "; out below, full above: payments at which it would, the others as they are. Samples for more: what all clients " +
    "together bring more if a client is paid that much more, at the present rate; Shapley value: what its samples contribute to the fall of the server loss; leave-one-out value: by how much the loss would rise without them.");
  $("leave").hidden = Boolean(groups);
  $("footer").textContent = `stackfu ${data.version}. All numbers were computed by the library when this page was written.`;

  $("lines").hidden = lines.length === 0;
  for (const { name, label } of lines) {
    const choice = document.createElement("label"), box = document.createElement("input"), sample = document.createElement("span");
    box.type = "checkbox";
    box.value = name;
    box.addEventListener("change", () => { if (box.checked) shown.add(name); else shown.delete(name); render(); });
    sample.style.setProperty("--colour", colours[name][0]);
    choice.append(box, sample, label);
    $("lines").append(choice);
  }

  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  $("link").addEventListener("click", async () => {
    const said = $("link").textContent;
    try { await navigator.clipboard.writeText(location.href); $("link").textContent = "Copied"; }
    catch { $("link").textContent = "It is in the address bar"; }
    setTimeout(() => { $("link").textContent = said; }, 2000);
  });
  $("csv").addEventListener("click", () =>
    save(new Blob([csv(stops[Number(slider.value)])], { type: "text/csv" }), fileName(groups ? "groups" : "clients", "csv")));
  for (const button of document.querySelectorAll("[data-save]")) {
    button.setAttribute("aria-label", `Save picture as ${button.dataset.kind.toUpperCase()}: ${button.closest("figure").querySelector("h2").textContent}`);
    button.addEventListener("click", () => savePicture(button.dataset.save, button.dataset.kind));
  }
  slider.max = stops.length - 1;
  slider.addEventListener("input", () => choose(Number(slider.value)));
  typed.addEventListener("input", () => {
    const budget = Number(typed.value);
    if (typed.value !== "" && budget >= 0) slider.value = stopWithin(budget);
    render();
  });
  $("check").addEventListener("click", checkProof);
  outside.addEventListener("input", render);
  if (data.outside) outside.placeholder = "as given";
  $("mathematics").addEventListener("toggle", render);
  addEventListener("hashchange", readFragment);
  // a mark that is reached by keyboard may have scrolled into view
  addEventListener("scroll", () => {
    if (tip.hidden) return;
    if (document.activeElement?.tell) document.activeElement.tell(); else tip.hidden = true;
  }, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; render(); } });
  readFragment();
})();
