"use strict";
// The gallery of examples, and what each model says about the chosen one. Names come in as text, never as HTML.

/** An element with attributes and children; a string child is text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function written(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  return value.toLocaleString("en", { maximumSignificantDigits: digits }).replace("-", "−");
}

function dot(model) {
  return element("i", { class: "dot", "data-colour": content.colours[model] });
}

/** What the example is: a picture, a row of named values, a text. */
function shown(what, short) {
  if (what.image && what.image.startsWith("data:image/")) return element("img", { src: what.image, alt: "the example, as a picture" });
  if (what.tokens) return element("p", { class: "tokens" }, (short ? what.tokens.slice(0, 12) : what.tokens).join(" ") + (short && what.tokens.length > 12 ? " …" : ""));
  if (what.text !== undefined) return element("pre", {}, short ? what.text.slice(0, 60) : what.text);
  const lines = (what.row || []).slice(0, short ? 3 : undefined);
  if (short) return element("span", {}, ...lines.flatMap(([name, value]) => [`${name} ${written(value)}`, element("br")]));
  const cells = lines.map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, written(value))));
  return element("div", { class: "scroll" }, element("table", {}, element("tbody", {}, ...cells)));
}

/** A bar from one share of the track to another; widths in per cent. */
function part(name, from, width) {
  return element("i", { class: name, style: `left:${from.toFixed(3)}%;width:${Math.max(0, width).toFixed(3)}%` });
}

function classBars(example, answer) {
  return answer.top.map(([name, probability]) =>
    element("div", { class: name === example.label ? "bar true" : "bar" },
      element("span", { title: name }, name), element("span", { class: "track" }, part("", 0, 100 * probability)),
      element("span", {}, `${(100 * probability).toFixed(1)} %`)));
}

/** The 90 % interval and the mean of every model on one scale, with the true value. */
function intervalBar(example, answer, ends) {
  if (answer.mean === null) return [];
  const at = (value) => (100 * (value - ends[0])) / (ends[1] - ends[0] || 1);
  const track = element("div", { class: "track line" });
  if (answer.low !== null && answer.high !== null) track.append(part("", at(answer.low), at(answer.high) - at(answer.low)));
  track.append(element("i", { class: "mean", style: `left:${at(answer.mean)}%` }));
  if (typeof example.label === "number") track.append(element("i", { class: "truth", style: `left:${at(example.label)}%` }));
  const words = answer.low === null ? written(answer.mean) : `${written(answer.mean)}, 90 % between ${written(answer.low)} and ${written(answer.high)}`;
  return [track, element("small", {}, words)];
}

/** A sentence whose entities stand out: the darker the less sure, outlined where they are wrong. */
function entityLine(example, answer) {
  const words = example.shown.tokens || answer.tokens.map((_, i) => String(i + 1));
  const gold = Array.isArray(example.label) ? example.label : null;
  const goesOn = (tag, type) => tag === `I-${type}` || tag === `E-${type}` || tag === `L-${type}`;
  const pieces = [];
  for (let i = 0; i < answer.tokens.length; ) {
    const { entity } = answer.tokens[i];
    const count = entity ? Math.min(entity.tokens, answer.tokens.length - i) : 1;
    const inside = answer.tokens.slice(i, i + count);
    const truth = gold && gold.slice(i, i + count);
    const right = !gold || (inside.every((token, k) => token.tag === truth[k]) && !(entity && goesOn(gold[i + count], entity.type)));
    const mean = (name) => inside.reduce((sum, token) => sum + (token[name] ?? 0), 0) / count;
    const measure = inside[0].knowledge === undefined ? "total" : "knowledge";
    const told = `${measure} ${written(mean(measure), 3)}${right ? "" : `, truly ${truth.join(" ")}`}`;
    const text = words.slice(i, i + count).join(" ");
    if (entity) {
      const sure = `${(100 * entity.confidence).toFixed(0)} %`;
      pieces.push(element("mark", {
        class: right ? "entity" : "entity wrong", style: `--strength:${(80 * (1 - entity.confidence)).toFixed(0)}%`,
        title: `${entity.type}, ${sure} sure, ${told}`,
      }, text, element("small", {}, `${entity.type} ${sure}`)));
    } else pieces.push(right ? text : element("span", { class: "missed", title: told }, text));
    pieces.push(" ");
    i += count;
  }
  return [element("p", { class: "tokens", "aria-label": "the sentence with its entities, the darker the less sure" }, ...pieces)];
}

/** A sequence, token by token: what is said of each, the darker the more uncertain. */
function tokenLine(example, answer, most) {
  const words = example.shown.tokens || answer.tokens.map((_, i) => String(i + 1));
  const measure = answer.tokens.some((token) => token.knowledge !== undefined) ? "knowledge" : "total";
  const marks = answer.tokens.map((token, i) => {
    const said = token.top ? `${token.top[0][0]} (${(100 * token.top[0][1]).toFixed(0)} %)` : "";
    const truth = Array.isArray(example.label) ? example.label[i] : null;
    const wrong = truth !== null && token.top && token.top[0][0] !== String(truth);
    const strength = Math.min(1, (token[measure] || 0) / (most || 1));
    return element("span", {
      class: wrong ? "token wrong" : "token", style: `--strength:${(80 * strength).toFixed(0)}%`,
      title: `${said}, ${measure} ${written(token[measure], 3)}${wrong ? `, truly ${truth}` : ""}`,
    }, words[i], element("small", {}, token.top ? token.top[0][0] : ""));
  });
  return [element("p", { class: "tokens", "aria-label": `every token, shaded by ${measure} uncertainty` }, ...marks)];
}

function decomposition(answer, most) {
  const scale = 100 / (most || 1);
  const track = element("div", { class: "track" });
  if (answer.data === null || answer.data === undefined) {
    track.append(part("total", 0, answer.total * scale));
    return element("div", { class: "split" }, track, `total ${written(answer.total, 3)} (not split by this method)`);
  }
  track.append(part("data", 0, answer.data * scale), part("knowledge", answer.data * scale, answer.knowledge * scale));
  return element("div", { class: "split" }, track, `total ${written(answer.total, 3)} = `,
    element("span", {}, element("i", { class: "key" }), `data ${written(answer.data, 3)}`), " + ",
    element("span", {}, element("i", { class: "key knowledge" }), `knowledge ${written(answer.knowledge, 3)}`));
}

function judgement(example, answer) {
  if (!answer.top || example.label === null) return "";
  const right = answer.top[0][0] === String(example.label);
  return element("em", { class: right ? "right" : "wrong" }, right ? "✓ right" : "✕ wrong");
}

/** Fills #example with one example. */
function tell(example) {
  const answers = models.filter((name) => example.answers[name]).map((name) => [name, example.answers[name]]);
  const most = Math.max(...answers.map(([, answer]) => answer.total));
  const loudest = Math.max(...answers.flatMap(([, a]) => (a.tokens || []).map((token) => token.knowledge ?? token.total)));
  const points = answers.flatMap(([, a]) => [a.mean, a.low, a.high]).concat(example.label).filter((x) => typeof x === "number");
  const ends = [Math.min(...points), Math.max(...points)];
  const facts = [["set", example.set], ["row", String(example.row)], ["truth", example.label === null ? "unknown" : Array.isArray(example.label) ? example.label.join(" ") : written(example.label)], ["chosen as", example.why]];
  const about = element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  const cards = answers.map(([name, answer]) => {
    const said = answer.top ? classBars(example, answer) : answer.tokens ? (answer.tokens.some((token) => token.tag) ? entityLine : tokenLine)(example, answer, loudest) : intervalBar(example, answer, ends);
    const head = element("h4", {}, element("span", {}, dot(name), name), judgement(example, answer));
    return element("div", { class: "answer", "data-colour": content.colours[name], "data-model": name }, head, ...said, decomposition(answer, most));
  });
  document.getElementById("example").replaceChildren(
    element("div", { class: "shown" }, shown(example.shown, false), about), element("div", { class: "answers" }, ...cards));
}

/** The gallery of the examples with one reason (or all), the first of them told. */
function gallery(reason) {
  const place = document.getElementById("gallery");
  const chosen = content.examples.filter((example) => reason === "all" || example.why === reason);
  place.classList.toggle("rows", !chosen.some((example) => example.shown.image));
  const buttons = chosen.map((example) => {
    const truth = example.label === null ? "no label" : Array.isArray(example.label) ? `${example.label.length} tokens` : typeof example.label === "number" ? `true ${written(example.label)}` : example.label;
    const button = element("button", { type: "button", "aria-pressed": "false" },
      shown(example.shown, true), element("b", {}, truth), element("span", {}, example.set));
    button.addEventListener("click", () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      tell(example);
    });
    return button;
  });
  place.replaceChildren(...buttons);
  if (buttons.length) buttons[0].click();
}
