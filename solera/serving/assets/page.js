"use strict";
// Everything that comes from the student (labels, names, units) is set as text, never as markup.

const SHOWN = 10; // classes before "show all"
const NORMAL = 1.645; // 90 % of a normal lie within so many standard deviations
// `most`: where the bar of uncertainty ends; `reach`: where the slider does, for each measure
const state = { model: null, picture: null, said: null, all: false, measure: null, most: 1, reach: {}, chosen: {} };

function number(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}
const real = () => state.model.task === "regression";
const unit = () => (real() ? "as variances" : "in nats");
const known = (measure) => Object.entries(state.model.thresholds).filter(([name]) => name.startsWith(measure));

// ---- asking

async function ask(inputs) {
  $("problem").hidden = true;
  let content;
  try {
    const answer = await fetch("predict", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ inputs }),
    });
    content = await answer.json();
    if (!answer.ok) return fail(content.reason);
  } catch (error) {
    return fail(`The service does not answer (${error.message}): is it still running?`);
  }
  state.said = content.predictions[0];
  state.all = false;
  show();
}

function fail(reason) {
  $("problem").textContent = reason;
  $("problem").hidden = false;
}

async function takePicture(file) {
  if (!file) return;
  try {
    state.picture = await createImageBitmap(file, { colorSpaceConversion: "none" });
  } catch {
    return fail(`${file.name} is no image that this browser can read: choose a PNG, JPEG or WebP.`);
  }
  askPicture();
}

function askRow(event) {
  event.preventDefault();
  const cell = (field) => field.value === "" ? null : field.type === "number" ? Number(field.value) : field.value;
  ask([[...document.querySelectorAll("#fields input, #fields select")].map(cell)]);
}

function askPasted(event) {
  event.preventDefault();
  const text = $("numbers").value.trim(), shape = state.model.inputs[0].shape;
  if (state.model.inputs.length > 1 || text.startsWith("[") || text.startsWith("{")) {
    try { return ask(JSON.parse(text)); } catch (error) { return fail(`That is not JSON (${error.message}).`); }
  }
  const words = text.split(/[\s,;]+/).filter(Boolean), numbers = words.map(Number);
  const wrong = numbers.findIndex((value) => !Number.isFinite(value));
  if (wrong >= 0) return fail(`“${words[wrong]}” is not a number: separate numbers by commas.`);
  const sizes = shape.map((size) => (typeof size === "number" ? size : numbers.length));
  const wanted = sizes.reduce((a, b) => a * b, 1);
  if (numbers.length !== wanted) return fail(`There are ${numbers.length} numbers, the student takes ${wanted}.`);
  const nested = (part, [size, ...rest]) => !rest.length ? part
    : Array.from({ length: size }, (_, i) => nested(part.slice(i * part.length / size, (i + 1) * part.length / size), rest));
  ask([nested(numbers, sizes)]);
}

// ---- showing

function bar(name, value, share, top) {
  const line = made("div", top ? "bar top" : "bar"), track = made("div", "track");
  const label = made("span", "name", name);
  label.title = name;
  track.append(wide(made("div", "fill"), share));
  line.append(label, track, made("span", "value", value));
  return line;
}

function showClasses(mean) {
  const order = mean.map((value, index) => [value, index]).sort((a, b) => b[0] - a[0]);
  const shown = state.all ? order : order.slice(0, SHOWN);
  $("mean-title").textContent = "What it is";
  const percent = (value) => `${(100 * value).toFixed(value > 0.0005 && value < 0.9995 ? 1 : 0)} %`;
  $("mean").replaceChildren(...shown.map(([value, index], place) =>
    bar(state.model.labels[index], percent(value), value, place === 0)));
  $("more").hidden = order.length <= SHOWN || state.all;
  $("more").textContent = `Show all ${order.length}`;
}

function showTargets(mean, total) {
  const spread = NORMAL * Math.sqrt(total), alone = mean.length === 1;
  $("mean-title").textContent = alone ? "Expected value, and where 90 % would lie if it were normal" : "Expected values";
  $("more").hidden = true;
  $("mean").replaceChildren(...mean.map((value, index) => {
    const name = state.model.labels[index], measured = state.model.units[name];
    const box = made("div", "target");
    const known = /^\d+$/.test(name) ? "" : `${name} `;
    box.append(made("span", "", known), made("span", "big", number(value)), made("span", "", measured ? ` ${measured}` : ""));
    if (!alone) return box;
    const track = made("div", "track"), between = wide(made("div", "between"), 0.6), point = made("div", "point");
    between.style.left = "20%";
    point.style.left = "50%";
    track.append(between, point);
    const ends = made("div", "ends");
    ends.append(made("span", "", number(value - spread)), made("span", "", `± ${number(spread)}`), made("span", "", number(value + spread)));
    box.append(track, ends);
    return box;
  }));
}

const MEANINGS = {
  data: "the input itself is ambiguous; more training would not help",
  knowledge: "its like was not seen; more data would help",
  total: "all of it",
};

function showSplit(said) {
  const parts = state.model.measures.includes("knowledge") ? ["data", "knowledge"] : ["total"];
  const stack = made("div", "track stack"), key = made("div", "key");
  for (const part of parts) {
    const piece = wide(made("div", part), said[part] / state.most);
    piece.title = `${part} ${number(said[part])}`;
    stack.append(piece);
  }
  const limit = made("div", "limit");
  limit.style.left = `${100 * Math.min(1, threshold() / state.most)}%`;
  limit.title = "threshold";
  if (state.measure === "total") stack.append(limit);
  for (const name of parts.length > 1 ? [...parts, "total"] : parts) {
    const label = made("span", "", `${name} `);
    label.prepend(made("span", `dot ${name}`));
    label.append(made("b", "", number(said[name])));
    key.append(label, made("span", "note", MEANINGS[name]));
  }
  $("split").replaceChildren(stack, key);
  $("split-note").textContent = parts.length > 1 ? `data + knowledge = total, ${unit()}.`
    : `All of it, ${unit()}. This student keeps no split into data and knowledge.`;
}

const threshold = () => Number($("threshold").value);

function showDecision(said) {
  const value = said[state.measure], accepted = value <= threshold();
  $("decision").className = accepted ? "accept" : "reject";
  $("decision").hidden = false;
  $("verdict").textContent = accepted ? "Accept." : "Reject.";
  $("because").textContent =
    `${said.label === undefined ? "" : `“${said.label}”: `}${state.measure} ${number(value)} is ${accepted ? "at most" : "above"} ${number(threshold())}.`;
}

function show() {
  const said = state.said;
  if (!said) return;
  if (Array.isArray(said.total)) {
    $("waiting").textContent = JSON.stringify(said, null, 1);
    $("rule").hidden = true;
    return;
  }
  $("waiting").hidden = true;
  $("said").hidden = false;
  state.most = Math.max(state.most, 1.4 * said.total);
  widen(said[state.measure]);
  if (real()) showTargets(said.mean, said.total); else showClasses(said.mean);
  showSplit(said);
  showDecision(said);
}

// ---- the rule

function setThreshold(value) {
  const shown = Number(value.toPrecision(6));
  state.chosen[state.measure] = value;
  if ($("threshold").value === "" || threshold() !== shown) $("threshold").value = shown; // else it may be being typed
  $("slider").value = Math.round(1000 * value / state.reach[state.measure]);
}
// So that the slider can reach a value and its neighbours; where nobody knows a threshold, the first answer suggests one.
function widen(value) {
  const { measure, reach, chosen } = state;
  const unknown = !known(measure).length && chosen[measure] === undefined;
  if (unknown) reach[measure] = 2 * value || 1;
  if (1.25 * value > reach[measure]) reach[measure] = 2 * value;
  setThreshold(unknown ? 1.25 * value || 0.5 : chosen[measure] ?? threshold());
}
function chooseMeasure(measure) {
  state.measure = measure;
  const [first] = known(measure);
  state.reach[measure] ??= first ? 3 * first[1] || 1 : state.most;
  $("slider-label").textContent = `Accept if the ${measure} uncertainty, ${unit()}, is at most`;
  $("unknown").hidden = Boolean(first);
  if (first) $("presets").value = first[0];
  const value = state.chosen[measure] ?? (first ? first[1] : undefined);
  if (value !== undefined) setThreshold(value);
  else if (!state.said) { $("threshold").value = ""; $("slider").value = 500; }
  show();
}

function rule(model) {
  state.most = real() ? 1 : Math.log(model.labels.length);
  const all = Object.entries(model.thresholds);
  for (const measure of model.measures) {
    const label = made("label"), choice = made("input");
    Object.assign(choice, { type: "radio", name: "measure", value: measure });
    choice.addEventListener("change", () => chooseMeasure(measure));
    label.append(choice, made("span", "", measure));
    $("measures").append(label);
  }
  for (const [name, value] of all) {
    const option = made("option", "", `${name}: ${number(value)}`);
    option.value = name;
    $("presets").append(option);
  }
  $("known").hidden = !all.length;
  $("presets").addEventListener("change", () => {
    const name = $("presets").value, measure = model.measures.find((word) => name.startsWith(word)) || state.measure;
    check(measure);
    state.reach[measure] = Math.max(state.reach[measure], 1.5 * model.thresholds[name]);
    setThreshold(model.thresholds[name]);
    $("presets").value = name;
    show();
  });
  $("slider").addEventListener("input", () => {
    setThreshold(state.reach[state.measure] * $("slider").value / 1000);
    show();
  });
  $("threshold").addEventListener("input", () => {
    if ($("threshold").value === "") return;
    setThreshold(threshold());
    show();
  });
  check(model.measures.find((word) => known(word).length) || "total");
}
function check(measure) {
  document.querySelector(`#measures input[value="${measure}"]`).checked = true;
  chooseMeasure(measure);
}

// ---- the form

function fields(model) {
  const [size] = model.inputs[0].shape;
  const names = model.features.length ? model.features : Array.from({ length: size }, (_, i) => `number ${i + 1}`);
  for (const name of names) {
    const words = Object.hasOwn(model.categories, name) ? model.categories[name] : null;
    const label = made("label", "", name), field = made(words ? "select" : "input");
    if (model.units[name]) label.append(made("small", "", ` in ${model.units[name]}`));
    if (words) for (const word of ["", ...words]) field.append(new Option(word || "missing", word));
    else Object.assign(field, { type: "number", step: "any", required: !model.missing, value: "0" });
    label.append(field);
    $("fields").append(label);
  }
}

function begin(model) {
  state.model = model;
  const [input] = model.inputs, alone = model.inputs.length === 1 && input.dtype.startsWith("float");
  const sizes = input.shape, fixed = sizes.every((size) => typeof size === "number");
  const image = alone && fixed && (sizes.length === 2 || (sizes.length === 3 && [1, 3].includes(sizes[0])));
  const row = alone && fixed && sizes.length === 1 && sizes[0] <= 64;
  $("about").textContent = `A ${model.method} student, ${model.fingerprint}: one model that stands in for an ensemble, `
    + "and says how sure it is, and why.";
  $("image").hidden = !image;
  $("row").hidden = !row;
  if (image) $("fitted").textContent = `Its middle is cut out, shrunk to ${sizes.slice(-2).reverse().join(" × ")} pixels`
    + `${sizes.length === 3 && sizes[0] === 3 ? "" : ", made grey"} and scaled to 0 … 1. Nothing else is done to it.`;
  if (row) fields(model);
  $("other").open = !image && !row;
  $("paste-title").textContent = image || row ? "Paste numbers instead" : "Paste numbers";
  const shapes = model.inputs.map((each) => `${each.name}: ${each.dtype} [${each.shape.join(", ")}]`).join("; ");
  $("paste-hint").textContent = model.inputs.length > 1 ? `A JSON object with ${shapes}` : `Separated by commas, or JSON; ${shapes}`;
  rule(model);
  if (model.task === "tagging") beginSentence(model);
  $("file").addEventListener("change", () => takePicture($("file").files[0]));
  $("invert").addEventListener("change", askPicture);
  $("row").addEventListener("submit", askRow);
  $("paste").addEventListener("submit", askPasted);
  $("more").addEventListener("click", () => { state.all = true; show(); });
  for (const kind of ["dragenter", "dragover"]) $("drop").addEventListener(kind, () => $("drop").classList.add("over"));
  for (const kind of ["dragleave", "drop"]) $("drop").addEventListener(kind, () => $("drop").classList.remove("over"));
}

fetch("model").then((answer) => answer.json()).then(begin)
  .catch((error) => fail(`The service does not answer (${error.message}): is it still running?`));
