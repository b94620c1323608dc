"use strict";
// Every chart as a function of what is chosen: {data, layout, legend}, or {empty: why there is nothing to draw}.

const content = JSON.parse(document.getElementById("content").textContent);
const curves = content.curves || {};
const models = content.models.map((model) => model.name);
const classes = content.task === "classification";
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
    title: { text: title, standoff: 8 }, automargin: true, fixedrange: true, zeroline: false,
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

function reliability(chosen) {
  const names = models.filter((name) => curves[name] && curves[name].reliability);
  if (!names.length) return { empty: "There is no reliability to draw: no test example has a label." };
  const data = [guide([0, 1], [0, 1], "honest")];
  for (const name of lastChosen(names, chosen)) {
    const { confidence, accuracy, share } = curves[name].reliability;
    data.push(line(name, chosen, confidence, accuracy, {
      mode: "lines+markers", marker: { size: share.map((part) => 4 + 12 * Math.sqrt(part)) }, customdata: share,
      hovertemplate: "%{x:.1%} sure, %{y:.1%} right<br>%{customdata:.1%} of the examples",
    }));
  }
  const own = curves[chosen] && curves[chosen].reliability;
  if (own) {
    data.push({
      type: "bar", name: plain(chosen), x: own.confidence, y: own.share, width: own.confidence.map(() => 0.04), yaxis: "y2",
      marker: { color: colourOf(chosen) }, hovertemplate: "%{y:.1%} of the examples, %{x:.1%} sure",
    });
  }
  const drawn = layout(
    axis("confidence", { range: [0, 1.02], tickformat: ".0%", anchor: "y2" }),
    axis("right", { range: [0, 1.03], tickformat: ".0%", domain: [0.3, 1] }),
    { yaxis2: axis("share", { domain: [0, 0.2], tickformat: ".0%", nticks: 3, rangemode: "tozero" }) },
  );
  return { data, layout: drawn, legend: names.map((name) => key(name)) };
}

function coverage(chosen) {
  const names = models.filter((name) => curves[name] && curves[name].coverage);
  if (!names.length) return { empty: "There is no coverage to draw: no test example has a target." };
  const data = [guide([0, 1], [0, 1], "honest")];
  for (const name of lastChosen(names, chosen)) {
    const { level, covered } = curves[name].coverage;
    data.push(line(name, chosen, level, covered, { hovertemplate: "promised %{x:.0%}, held %{y:.1%}" }));
  }
  const drawn = layout(axis("promised", { range: [0, 1.001], tickformat: ".0%" }), axis("held", { range: [0, 1.02], tickformat: ".0%" }));
  return { data, layout: drawn, legend: names.map((name) => key(name)) };
}

function pit(chosen) {
  const own = curves[chosen] && curves[chosen].pit;
  if (!own) return { empty: `${chosen} has no such histogram.` };
  const middle = own.share.map((_, i) => (own.edges[i] + own.edges[i + 1]) / 2);
  const even = 1 / own.share.length;
  const data = [
    {
      type: "bar", name: plain(chosen), x: middle, y: own.share, width: own.share.map((_, i) => 0.94 * (own.edges[i + 1] - own.edges[i])),
      marker: { color: colourOf(chosen) }, hovertemplate: "%{y:.1%} of the targets",
    },
    guide([0, 1], [even, even], "honest"),
  ];
  const drawn = layout(axis("probability of a smaller target", { range: [0, 1] }), axis("share of targets", { ...SHARE, rangemode: "tozero" }));
  return { data, layout: drawn, legend: [{ text: chosen, colour: colourOf(chosen), kind: "box" }] };
}

function truth(chosen) {
  const own = curves[chosen] && curves[chosen].truth;
  if (!own) return { empty: `There are no points to draw for ${chosen}: its targets have several dimensions.` };
  const all = [...own.target, ...own.predicted];
  const ends = [Math.min(...all), Math.max(...all)];
  const points = {
    type: "scatter", mode: "markers", name: plain(chosen), x: own.target, y: own.predicted,
    marker: { color: colourOf(chosen), size: 5, opacity: 0.45 }, hovertemplate: "true %{x:.4~g}, predicted %{y:.4~g}",
  };
  return { data: [points, guide(ends, ends, "exact")], layout: layout(axis("true"), axis("predicted")), legend: [{ text: chosen, colour: colourOf(chosen), kind: "point" }] };
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
    axis(classes ? "error left" : "squared error left", { rangemode: "tozero", ...(classes ? SHARE : { hoverformat: ".4~g" }) }),
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
