"use strict";
// Every chart as a function of what is chosen: {data, layout, legend}, or {empty: why there is nothing to draw}.

const content = JSON.parse(document.getElementById("content").textContent);
const curves = content.curves || {};
const models = content.models.map((model) => model.name);
const shares = content.error.percent;
const MEASURES = ["total", "data", "knowledge"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const SYMBOLS = ["circle", "diamond", "x", "triangle-up", "square", "cross"];

const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);

/** The present value of a colour of the style sheet: plotly wants it resolved. */
function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

function colourOf(model) {
  const name = content.colours[model];
  return colour(name === "reference" ? name : `model-${name}`);
}

/** A model past the last colour starts them anew with another dash. */
function dashOf(model) {
  const others = models.filter((name) => name !== content.reference);
  return DASHES[Math.max(0, Math.floor(others.indexOf(model) / 6)) % DASHES.length];
}

/** Plotly reads a few tags in its texts; names are text and nothing else. */
function plain(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function axis(title, options) {
  return {
    title: { text: plain(title), standoff: 8 }, automargin: true, fixedrange: true, zeroline: false,
    gridcolor: colour("line"), linecolor: colour("grey"), ticks: "outside", ticklen: 4, tickcolor: colour("line"), ...options,
  };
}

function layout(x, y, options) {
  const font = getComputedStyle(document.body).fontFamily;
  return {
    font: { family: font, size: 12, color: colour("soft") }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 22, t: 12, b: 8 }, showlegend: false, hovermode: "closest", dragmode: false, xaxis: x, yaxis: y,
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("grey"), font: { family: font, color: colour("ink") } }, ...options,
  };
}

/** One line of a model; the chosen one stands out. */
function line(model, chosen, x, y, options) {
  return {
    type: "scatter", mode: "lines", name: plain(model), x, y, opacity: model === chosen ? 1 : 0.5,
    line: { color: colourOf(model), width: model === chosen ? 3.5 : 1.75, dash: dashOf(model) }, ...options,
  };
}

function guide(x, y, name, dash = "dot") {
  return { type: "scatter", mode: "lines", name, x, y, hoverinfo: "skip", line: { color: colour("grey"), width: 1.25, dash } };
}

/** All others first, so that the chosen one is drawn on top. */
function lastChosen(names, chosen) {
  return [...names.filter((name) => name !== chosen), ...names.filter((name) => name === chosen)];
}

function key(model, text = model) {
  return { text, colour: colourOf(model), kind: "line", dash: dashOf(model) };
}

const SHARE = { tickformat: ".2~%", hoverformat: ".2~%" };

/** The axis of a figure: shares in per cent, from 0 to 1. */
function figureAxis(figure, number, whole) {
  const share = figure.percent[number];
  return axis(figure.axes[number], share ? { tickformat: ".0%", ...(whole ? { range: [0, 1.02] } : { ...SHARE, rangemode: "tozero" }) } : {});
}

/** A picture that the task draws: lines of all models, or bars or points of the chosen one. */
function figure(name, chosen) {
  const found = (model) => curves[model] && curves[model].figures && curves[model].figures[name];
  const own = found(chosen);
  if (!own) return { empty: `${chosen} has no such picture.` };
  const ends = own.percent[0] && own.percent[1] ? [0, 1] : [Math.min(...own.x, ...own.y), Math.max(...own.x, ...own.y)];
  const perfect = own.guide === "diagonal" ? [guide(ends, ends, "perfect")] : [];
  if (own.kind === "points") {
    const points = {
      type: "scatter", mode: "markers", name: plain(chosen), x: own.x, y: own.y,
      marker: { color: colourOf(chosen), size: 5, opacity: 0.45 }, hovertemplate: own.hover,
    };
    return { data: [points, ...perfect], layout: layout(figureAxis(own, 0), figureAxis(own, 1)), legend: [{ text: chosen, colour: colourOf(chosen), kind: "point" }] };
  }
  if (own.kind === "bars") {
    const middle = own.y.map((_, i) => (own.x[i] + own.x[i + 1]) / 2);
    const even = 1 / own.y.length;
    const bars = {
      type: "bar", name: plain(chosen), x: middle, y: own.y, width: own.y.map((_, i) => 0.94 * (own.x[i + 1] - own.x[i])),
      marker: { color: colourOf(chosen) }, hovertemplate: own.hover,
    };
    const level = own.guide === "even" ? [guide([own.x[0], own.x[own.x.length - 1]], [even, even], "perfect")] : [];
    return { data: [bars, ...level], layout: layout(figureAxis(own, 0), figureAxis(own, 1)), legend: [{ text: chosen, colour: colourOf(chosen), kind: "box" }] };
  }
  const names = models.filter(found);
  const data = [...perfect];
  for (const model of lastChosen(names, chosen)) {
    const { x, y, share, hover } = found(model);
    const sized = share ? {
      mode: "lines+markers", marker: { size: share.map((part) => 4 + 12 * Math.sqrt(part)) }, customdata: share,
      hovertemplate: `${hover}<br>%{customdata:.1%} of the examples`,
    } : { hovertemplate: hover };
    data.push(line(model, chosen, x, y, sized));
  }
  const legend = names.map((model) => key(model));
  if (!own.share) return { data, legend, layout: layout(figureAxis(own, 0, true), figureAxis(own, 1, true)) };
  data.push({
    type: "bar", name: plain(chosen), x: own.x, y: own.share, width: own.x.map(() => 0.04), yaxis: "y2",
    marker: { color: colourOf(chosen) }, hovertemplate: "%{y:.1%} of the examples",
  });
  const drawn = layout(
    { ...figureAxis(own, 0, true), anchor: "y2" }, { ...figureAxis(own, 1, true), domain: [0.3, 1] },
    { yaxis2: axis("share", { domain: [0, 0.2], tickformat: ".0%", nticks: 3, rangemode: "tozero" }) },
  );
  return { data, layout: drawn, legend };
}

function rejection(measure, chosen) {
  const names = models.filter((name) => curves[name] && curves[name].rejection && curves[name].rejection[measure]);
  if (!names.length) return { empty: `No model has ${measure} uncertainty.` };
  const data = [];
  for (const name of lastChosen(names, chosen)) {
    const { rejected, error } = curves[name].rejection[measure];
    data.push(line(name, chosen, rejected, error, { hovertemplate: "%{x:.0%} rejected, error %{y} left" }));
  }
  const own = curves[chosen];
  const legend = names.map((name) => key(name));
  if (own && own.oracle) {
    data.push({ ...line(chosen, chosen, own.oracle.rejected, own.oracle.error, {}), name: "oracle", hoverinfo: "skip", line: { color: colourOf(chosen), width: 1.75, dash: "dot" } });
    data.push(guide([0, 1], [own.oracle.error[0], own.oracle.error[0]], "random"));
    legend.push({ text: `oracle for ${chosen}`, colour: colourOf(chosen), kind: "line", dash: "dot" });
    legend.push({ text: "at random", colour: colour("grey"), kind: "line", dash: "dot" });
  }
  const drawn = layout(
    axis("rejected", { range: [0, 1.001], tickformat: ".0%" }),
    axis(`${content.error.name} left`, { rangemode: "tozero", ...(shares ? SHARE : { hoverformat: ".4~g" }) }),
  );
  return { data, layout: drawn, legend };
}

function roc(set, measure, chosen) {
  const found = (name) => ((curves[name] && curves[name].roc && curves[name].roc[set]) || {})[measure];
  const names = models.filter(found);
  if (!names.length) return { empty: `No model has ${measure} uncertainty.` };
  const data = [guide([0, 1], [0, 1], "chance")];
  for (const name of lastChosen(names, chosen)) {
    data.push(line(name, chosen, found(name).false, found(name).true, { hovertemplate: "%{x:.1%} false alarms, %{y:.1%} caught" }));
  }
  const drawn = layout(axis("false alarms", { range: [0, 1.001], tickformat: ".0%" }), axis("caught", { range: [0, 1.02], tickformat: ".0%" }));
  const area = (name) => (found(name).auroc == null ? "–" : `${(100 * found(name).auroc).toFixed(1)} %`);
  return { data, layout: drawn, legend: names.map((name) => key(name, `${name} · AUROC ${area(name)}`)) };
}

function histogram(set, measure, chosen) {
  const own = ((curves[chosen] && curves[chosen].histogram) || {})[measure];
  if (!own) return { empty: `${chosen} has no ${measure} uncertainty: its method does not split the total.` };
  if (!own.sets[set]) return { empty: `${chosen} was not asked about ${set}.` };
  const familiar = content.sets[0].name;
  const step = (name, paint) => ({
    type: "scatter", mode: "lines", name: plain(name), x: own.edges, y: [...own.sets[name], 0], fill: "tozeroy", opacity: 0.9,
    line: { shape: "hv", color: paint, width: 1.75 }, hovertemplate: "%{y:.1%} of the inputs from %{x:.3~g}",
  });
  const drawn = layout(axis(`${measure} uncertainty`), axis("share of inputs", { ...SHARE, rangemode: "tozero" }));
  const legend = [
    { text: familiar, colour: colour("grey"), kind: "box" },
    { text: `${set} · ${chosen}`, colour: colourOf(chosen), kind: "box" },
  ];
  return { data: [step(familiar, colour("grey")), step(set, colourOf(chosen))], layout: drawn, legend };
}

function scatter(chosen, measure, logarithmic) {
  const own = ((content.scatter || {})[chosen] || {})[measure];
  if (!own) return { empty: `${chosen} has no ${measure} uncertainty to compare: its method does not split the total.` };
  const paint = colourOf(chosen);
  const shown = (i) => !logarithmic || (own.model[i] > 0 && own.reference[i] > 0);
  const data = [], legend = [], all = [];
  content.sets.forEach((set, number) => {
    const at = own.set.map((_, i) => i).filter((i) => own.set[i] === number && shown(i));
    if (!at.length) return;
    const x = at.map((i) => own.reference[i]), y = at.map((i) => own.model[i]);
    all.push(...x, ...y);
    const tint = number ? paint : colour("grey");
    data.push({
      type: "scatter", mode: "markers", name: plain(set.name), x, y, customdata: at.map((i) => own.row[i]),
      marker: { color: tint, size: 5, opacity: 0.55, symbol: SYMBOLS[number % SYMBOLS.length] },
      hovertemplate: "row %{customdata}<br>reference %{x:.3~g}, model %{y:.3~g}",
    });
    legend.push({ text: set.name, colour: tint, kind: SYMBOLS[number % SYMBOLS.length] });
  });
  if (!all.length) return { empty: "No point is above zero: choose the plain scale." };
  const low = all.reduce((a, b) => Math.min(a, b)), high = all.reduce((a, b) => Math.max(a, b));
  data.push(guide([low, high], [low, high], "the same"));
  const scale = logarithmic ? { type: "log", exponentformat: "power", dtick: 1 } : { rangemode: "tozero" };
  return { data, legend, layout: layout(axis(`${content.reference}, ${measure}`, scale), axis(`${chosen}, ${measure}`, scale)) };
}
