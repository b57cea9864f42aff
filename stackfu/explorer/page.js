"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { game, clients, stops } = data;
  const $ = (id) => document.getElementById(id);
  const slider = $("budget"), tip = $("tip");

  const digits = (value, n = 5) => {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const text = Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7 ? value.toExponential(n - 1) : value.toPrecision(n);
    return String(Number(text));
  };
  const percent = (value) =>
    value > 0 && value < 5e-5 ? "<0.01%" : value === 0 ? "0%" : (100 * value).toFixed(value < 0.0995 ? 2 : 1) + "%";

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
  const frame = (place, { x, y, xLabel, yLabel, label, xFormat = (v) => digits(v, 3), yFormat = (v) => digits(v, 3) }) => {
    const width = Math.max(place.clientWidth, 240), height = Math.max(260, Math.min(340, width * 0.62));
    const left = 58, right = 14, top = 26, bottom = 42;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": label });
    const X = (v) => left + ((v - x[0]) / (x[1] - x[0])) * (width - left - right);
    const Y = (v) => height - bottom - ((v - y[0]) / (y[1] - y[0])) * (height - top - bottom);
    for (const v of ticks(x[0], x[1], width < 420 ? 4 : 6)) {
      root.append(svg("line", { x1: X(v), x2: X(v), y1: top, y2: height - bottom, stroke: "var(--grid)" }));
      root.append(svg("text", { x: X(v), y: height - bottom + 16, "text-anchor": "middle" }, xFormat(v)));
    }
    for (const v of ticks(y[0], y[1], 5)) {
      root.append(svg("line", { x1: left, x2: width - right, y1: Y(v), y2: Y(v), stroke: "var(--grid)" }));
      root.append(svg("text", { x: left - 6, y: Y(v) + 4, "text-anchor": "end" }, yFormat(v)));
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
    for (const event of ["pointerenter", "focus"]) group.addEventListener(event, show);
    for (const event of ["pointerleave", "blur"]) group.addEventListener(event, hide);
    return group;
  };

  const largestPayment = Math.max(1e-300, ...stops.flatMap((stop) => stop.payments));

  const drawParticipation = (stop) => {
    const place = $("participation");
    const axes = frame(place, {
      x: span(clients.distance, 0.12), y: [0, 1.18 * Math.max(...clients.share)],
      xLabel: `distance to ${game.distance_to}`, yLabel: "share of the remaining data",
      yFormat: (v) => `${Math.round(100 * v)}%`, label: "Clients by distance and share of data",
    });
    const order = clients.name.map((_, k) => k).sort((a, b) => stop.payments[b] - stop.payments[a]);
    for (const k of order) {
      const cx = axes.X(clients.distance[k]), cy = axes.Y(clients.share[k]);
      const r = 6 + 20 * Math.sqrt(stop.payments[k] / largestPayment), share = stop.participation[k];
      const words =
        `Client ${clients.name[k]}: ${clients.samples[k]} samples\n` +
        `takes part with ${percent(share)}\npayment ${digits(stop.payments[k], 4)} at cost ${digits(clients.cost[k], 4)}\n` +
        `utility ${digits(stop.utilities[k], 4)}\n` +
        `stays out below ${digits(stop.out_below[k], 4)}, takes part fully above ${digits(stop.full_above[k], 4)}`;
      const group = mark(
        words,
        svg("circle", { class: "halo", cx, cy, r, fill: "var(--accent-soft)", "fill-opacity": 0.75, stroke: "var(--line)" }),
        svg("path", { d: share > 0 ? arc(cx, cy, r, share) : "", fill: "none", stroke: "var(--accent)", "stroke-width": 4 }),
        svg("text", { x: cx + r + 4, y: cy + 4, style: "fill: var(--ink)" }, String(clients.name[k])),
      );
      group.dataset.client = clients.name[k];
      axes.root.append(group);
    }
  };

  const drawFrontier = (chosen) => {
    const place = $("frontier");
    const bounds = stops.filter((stop) => stop.lower_bound !== null);
    const axes = frame(place, {
      x: [0, 1.03 * Math.max(...stops.map((stop) => stop.budget), 1e-12)],
      y: span([...stops.map((stop) => stop.objective), ...bounds.map((stop) => stop.lower_bound)]),
      xLabel: "budget", yLabel: data.proves, label: `${data.proves} against budget`,
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
    axes.root.append(svg("path", { d: line(losses, axes), fill: "none", stroke: "var(--accent)", "stroke-width": 2 }));
    stops.forEach((stop, i) => {
      const words = `Budget ${digits(stop.budget)}\nserver loss ${digits(stop.server_loss, 6)}` +
        (stop.lower_bound === null ? "" : `\nno payments bring the ${data.proves} below ${digits(stop.lower_bound, 6)}`);
      const now = i === chosen;
      const dot = mark(words, svg("circle", {
        class: "halo", cx: axes.X(stop.budget), cy: axes.Y(stop.objective), r: now ? 7 : 4,
        fill: now ? "var(--accent)" : "var(--card)", stroke: "var(--accent)", "stroke-width": 2,
      }));
      dot.addEventListener("click", () => { slider.value = i; render(); });
      dot.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); slider.value = i; render(); slider.focus(); }
      });
      axes.root.append(dot);
    });
    legend(axes, [["certified payments", "var(--accent)", 2, 1], ["proved out of reach", "var(--bound)", 10, 0.3]]);
  };

  const legend = (axes, entries) => entries.forEach(([words, stroke, width, opacity], i) => {
    const y = axes.top + 12 + 18 * i, x = axes.right - 150;
    axes.root.append(svg("line", {
      x1: x, x2: x + 22, y1: y - 4, y2: y - 4, stroke, "stroke-width": width, "stroke-opacity": opacity,
    }));
    axes.root.append(svg("text", { x: x + 28, y }, words));
  });

  const drawLevel = (stop) => {
    const place = $("level");
    if (!stop.curve.length) {
      place.textContent = "All remaining clients own the same data, so there is no level function to draw.";
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

  const fillTable = (stop) => {
    const rows = clients.name.map((name, k) => {
      const row = document.createElement("tr");
      const cells = [
        ["client", name, name], ["samples", clients.samples[k], clients.samples[k]],
        ["distance", clients.distance[k], digits(clients.distance[k], 4)], ["cost", clients.cost[k], digits(clients.cost[k], 4)],
        ["payment", stop.payments[k], digits(stop.payments[k], 4)],
        ["participation", stop.participation[k], percent(stop.participation[k])],
        ["utility", stop.utilities[k], digits(stop.utilities[k], 4)],
        ["out_below", stop.out_below[k], digits(stop.out_below[k], 4)],
        ["full_above", stop.full_above[k], digits(stop.full_above[k], 4)],
      ];
      for (const [name, value, text] of cells) {
        const cell = document.createElement(name === "client" ? "th" : "td");
        cell.dataset.name = name;
        cell.dataset.value = String(value);
        if (name === "client") cell.scope = "row";
        if (name === "participation") {
          cell.className = "bar";
          const bar = document.createElement("span");
          bar.style.setProperty("--share", `${100 * value}%`);
          bar.textContent = text;
          cell.append(bar);
        } else cell.textContent = text;
        row.append(cell);
      }
      return row;
    });
    $("rows").replaceChildren(...rows);
  };

  // ------------------------------------------------------------------ the page

  const render = () => {
    const i = Number(slider.value), stop = stops[i];
    tip.hidden = true;
    put("budget-value", stop.budget, stop.budget === 0 ? "none" : digits(stop.budget));
    slider.setAttribute("aria-valuetext", `budget ${digits(stop.budget)}, server loss ${digits(stop.server_loss)}`);
    put("server_loss", stop.server_loss, digits(stop.server_loss));
    put("lower_bound", stop.lower_bound, digits(stop.lower_bound));
    put("spend", stop.spend, digits(stop.spend));
    put("total", stop.total, percent(stop.total));
    $("certificate").replaceChildren(...stop.certificate.map((sentence) => {
      const item = document.createElement("li");
      item.textContent = sentence;
      return item;
    }));
    drawParticipation(stop);
    drawFrontier(i);
    drawLevel(stop);
    fillTable(stop);
  };

  const removed = game.removed.length === 0 ? "nobody is to be forgotten"
    : `client${game.removed.length > 1 ? "s" : ""} ${game.removed.join(", ")} ${game.removed.length > 1 ? "are" : "is"} to be forgotten`;
  $("story").textContent =
    `${game.clients} clients with ${game.samples} samples; ${removed}. The ${clients.name.length} that remain own ` +
    `${game.remaining_samples} samples; to have them all take part fully costs ${digits(game.full_participation_price)}.`;
  $("footer").textContent = `stackfu ${data.version}. All numbers were computed by the library when this page was written.`;

  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  slider.max = stops.length - 1;
  slider.addEventListener("input", render);
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; render(); } });
  render();
})();
