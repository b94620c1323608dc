"use strict";
// Controls, theme, printing and copying: wires what a person chooses to the charts.

const root = document.documentElement;
root.classList.add("scripted");
const drawings = new Map(); // chart's id -> a function that makes it
const printing = { now: false };

/** The legend under a chart, as a list that a screen reader can read. */
function legendOf(items) {
  const shapes = {
    line: '<path d="M1 5h26" fill="none" stroke="currentColor" stroke-width="2.5"/>',
    box: '<path d="M6 0h14v10h-14z" fill="currentColor"/>',
    diamond: '<path d="M14 0l5 5-5 5-5-5z" fill="currentColor"/>',
    x: '<path d="M10 1l8 8M18 1l-8 8" stroke="currentColor" stroke-width="2.5"/>',
    "triangle-up": '<path d="M14 0l6 10h-12z" fill="currentColor"/>',
    square: '<path d="M9 0h10v10h-10z" fill="currentColor"/>',
    cross: '<path d="M14 0v10M9 5h10" stroke="currentColor" stroke-width="3"/>',
  };
  const dashes = { dot: "2 4", dash: "7 4", dashdot: "7 3 2 3" };
  return element("ul", { class: "legend" }, ...items.map((item) => {
    const sign = element("span", { "aria-hidden": "true", style: `color:${item.colour}` });
    sign.innerHTML = `<svg viewBox="0 0 28 10">${shapes[item.kind] || '<circle cx="14" cy="5" r="4" fill="currentColor"/>'}</svg>`;
    if (item.kind === "line" && dashes[item.dash]) sign.querySelector("path").setAttribute("stroke-dasharray", dashes[item.dash]);
    return element("li", {}, sign, item.text);
  }));
}

function draw(id) {
  const place = document.getElementById(id);
  const made = drawings.get(id)();
  place.parentElement.querySelectorAll(".legend").forEach((old) => old.remove());
  place.classList.toggle("empty", Boolean(made.empty));
  if (made.empty) {
    Plotly.purge(place);
    place.replaceChildren(made.empty);
    return;
  }
  if (!place.classList.contains("js-plotly-plot")) place.replaceChildren();
  if (printing.now) made.layout.width = place.closest(".charts")?.children.length > 1 ? 300 : 620;
  Plotly.react(place, made.data, made.layout, { responsive: true, displayModeBar: false });
  place.after(legendOf(made.legend));
}

/** Registers a chart and draws it, if the page has a place for it. */
function chart(id, make) {
  const place = document.getElementById(id);
  if (!place) return;
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", place.closest("figure").querySelector("figcaption").textContent.trim());
  drawings.set(id, make);
  draw(id);
}

/** A row of options, one of them chosen: radio buttons, so arrow keys work. */
function choose(place, title, options, value, changed) {
  if (options.length < 2) return;
  const group = `${place}-${title}`.replace(/\W+/g, "-");
  const labels = options.map((option) => {
    const input = element("input", { type: "radio", name: group, value: option, checked: option === value });
    input.addEventListener("change", () => changed(option));
    const sign = content.colours[option] && title === "Model" ? [dot(option)] : [];
    return element("label", {}, input, element("span", {}, ...sign, option));
  });
  document.getElementById(place)?.append(element("fieldset", {}, element("legend", {}, title), ...labels));
}

/** Controls for the named choices; `drawn` are the charts to draw again when one changes. */
function controls(place, state, choices, drawn) {
  for (const [title, name, options] of choices) {
    choose(place, title, options, state[name], (value) => {
      state[name] = value;
      drawn.forEach((id) => drawings.has(id) && draw(id));
    });
  }
}

/** What to look at first: a student to deploy, one that knows what it does not know; else what comes nearest. */
function favourite(names) {
  const students = content.models.filter((model) => model.role === "student").map((model) => model.name);
  const deployed = (name) => (content.verdicts || []).some((verdict) => verdict.deploy && verdict.student === name);
  const worth = (name) => 4 * students.includes(name) + 2 * Boolean(curves[name]?.rejection?.knowledge) + deployed(name);
  return names.reduce((best, name) => (best === undefined || worth(name) > worth(best) ? name : best), undefined);
}

function measuresIn(found) {
  const all = new Set([...MEASURES, ...found.flatMap((there) => Object.keys(there || {}))]);
  return [...all].filter((measure) => found.some((there) => there && there[measure]));
}

function drawAll() {
  const drawnModels = models.filter((name) => curves[name]);
  const calibration = { model: favourite(drawnModels) };
  const pictures = [...new Set(drawnModels.flatMap((name) => Object.keys(curves[name].figures || {})))];
  controls("calibration-controls", calibration, [["Model", "model", drawnModels]], pictures.map((name) => `figure-${name}`));
  for (const name of pictures) chart(`figure-${name}`, () => figure(name, calibration.model));

  const rejecting = { model: favourite(drawnModels), measure: "total" };
  const rejectMeasures = measuresIn(drawnModels.map((name) => curves[name].rejection));
  controls("rejection-controls", rejecting, [["Measure", "measure", rejectMeasures], ["Model", "model", drawnModels]], ["rejection"]);
  chart("rejection", () => rejection(rejecting.measure, rejecting.model));

  const sets = content.sets.slice(1).map((set) => set.name);
  const seen = measuresIn(drawnModels.map((name) => curves[name].histogram));
  const own = (curves[favourite(drawnModels)] || {}).histogram || {};
  const strange = { set: sets[0], measure: own.knowledge ? "knowledge" : "total", model: favourite(drawnModels) };
  controls("unfamiliar-controls", strange, [["Set", "set", sets], ["Measure", "measure", seen], ["Model", "model", drawnModels]], ["roc", "histogram"]);
  chart("roc", () => roc(strange.set, strange.measure, strange.model));
  chart("histogram", () => histogram(strange.set, strange.measure, strange.model));

  const compared = models.filter((name) => (content.scatter || {})[name] && name !== content.reference);
  const both = measuresIn(compared.map((name) => content.scatter[name]));
  const pair = { model: favourite(compared), scale: "logarithmic" };
  pair.measure = ((content.scatter || {})[pair.model] || {}).knowledge ? "knowledge" : "total";
  controls("scatter-controls", pair, [["Model", "model", compared], ["Measure", "measure", both], ["Scale", "scale", ["logarithmic", "plain"]]], ["scatter"]);
  chart("scatter", () => scatter(pair.model, pair.measure, pair.scale === "logarithmic"));
}

/** Unpacks plotly: it stands in the page compressed. */
async function plotly() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (letter) => letter.charCodeAt(0));
  const text = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  document.head.append(element("script", {}, text));
}

/** Light or dark: the system's choice until the button is pressed; the charts follow. */
function theme() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const follow = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", dark() ? "Show in light colours" : "Show in dark colours");
    button.setAttribute("aria-pressed", String(dark()));
    drawings.forEach((_, id) => draw(id));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    follow();
  });
  system.addEventListener("change", follow);
  follow();
  const worn = { theme: undefined, closed: [] };
  addEventListener("beforeprint", () => {
    worn.theme = root.dataset.theme;
    root.dataset.theme = "light";
    printing.now = true;
    worn.closed = [...document.querySelectorAll("details:not([open])")];
    worn.closed.forEach((details) => { details.open = true; });
    drawings.forEach((_, id) => draw(id));
  });
  addEventListener("afterprint", () => {
    printing.now = false;
    worn.closed.forEach((details) => { details.open = false; });
    if (worn.theme) root.dataset.theme = worn.theme;
    else delete root.dataset.theme;
    drawings.forEach((_, id) => draw(id));
  });
}

/** The threshold tables of one model and measure at a time. */
function thresholds() {
  const blocks = [...document.querySelectorAll("#thresholds .block")];
  const lines = [...document.querySelectorAll("#thresholds tr[data-measure]")];
  const tables = [...document.querySelectorAll("#thresholds .wishes > .scroll")];
  if (!blocks.length) return;
  const found = content.thresholds;
  const state = { model: favourite(Object.keys(found)), measure: "total" };
  const show = () => {
    const other = ({ measure }) => measure !== undefined && measure !== state.measure;
    blocks.forEach((block) => { block.hidden = block.dataset.model !== state.model || other(block.dataset); });
    lines.forEach((line) => { line.hidden = other(line.dataset); });
    tables.forEach((table) => { table.hidden = !table.querySelector("tbody tr:not([hidden])"); });
  };
  const pick = (name) => (value) => { state[name] = value; show(); };
  choose("thresholds-controls", "Model", Object.keys(found), state.model, pick("model"));
  choose("thresholds-controls", "Measure", measuresIn(Object.values(found)), state.measure, pick("measure"));
  show();
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = element("textarea", {}, text);
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

function copying() {
  for (const code of document.querySelectorAll("code[data-copy]")) {
    const button = element("button", { type: "button", class: "copy", "aria-label": `Copy ${code.textContent}` }, "copy");
    button.addEventListener("click", async () => {
      await copy(code.textContent).then(() => { button.textContent = "copied"; }, () => { button.textContent = "select it"; });
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    code.after(button);
  }
}

function examples() {
  if (!content.examples?.length) return;
  const reasons = ["all", ...new Set(content.examples.map((example) => example.why))];
  if (reasons.length > 2) choose("examples-controls", "Chosen as", reasons, "all", gallery);
  gallery("all");
}

thresholds();
copying();
examples();
theme();
if (typeof DecompressionStream === "undefined") {
  document.getElementById("old-browser").hidden = false;
  document.querySelectorAll("figure").forEach((figure) => { figure.hidden = true; });
} else {
  plotly().then(drawAll).then(() => { root.dataset.ready = "yes"; });
}
