"use strict";
// Text in, the sentence out: its entities coloured by how sure the student is, or by what it does not know.

const sentence = { said: null, by: "confidence" };
const HUES = [210, 25, 145, 280, 330, 60, 175, 0]; // of types, in their order

async function askText(event) {
  event.preventDefault();
  $("problem").hidden = true;
  let content;
  try {
    const answer = await fetch("entities", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ text: $("text").value }),
    });
    content = await answer.json();
    if (!answer.ok) return fail(content.reason);
  } catch (error) {
    return fail(`The service does not answer (${error.message}): is it still running?`);
  }
  [sentence.said] = content.answers;
  showSentence();
}

// How strong a colour is, 0 to 1: sure entities are strong by confidence, unfamiliar ones by knowledge.
function strength(entity) {
  if (sentence.by === "confidence") return entity.confidence;
  return Math.min(1, Math.sqrt(entity[sentence.by] / Math.log(state.model.labels.length))); // of the most there can be
}

const least = () => $("least").value / 1000;
const share = (value) => `${(100 * value).toFixed(1)} %`;

function marked(entity, types) {
  const kept = entity.confidence >= least(), mark = made("mark", kept ? "" : "masked");
  const hue = HUES[types.indexOf(entity.type) % HUES.length], light = 95 - 45 * strength(entity);
  mark.style.backgroundColor = kept ? `hsl(${hue} 70% ${light}%)` : "";
  mark.style.color = kept ? (light < 62 ? "#fff" : "#111") : "";
  mark.dataset.text = entity.text;
  mark.title = ["confidence", ...state.model.measures].map((name) =>
    `${name} ${name === "confidence" ? share(entity[name]) : number(entity[name])}`).join(", ");
  mark.append(made("span", "", kept ? entity.text : `[${entity.type}?]`), made("sub", "", entity.type));
  return mark;
}

function row(entity) {
  const line = made("tr", entity.confidence >= least() ? "" : "masked");
  line.append(made("td", "", entity.text), made("td", "", entity.type), made("td", "number", share(entity.confidence)));
  for (const name of state.model.measures) line.append(made("td", "number", number(entity[name])));
  return line;
}

function showSentence() {
  const said = sentence.said;
  $("least-label").textContent = `Mask entities with a confidence below ${share(least())}`;
  if (!said) return;
  $("waiting").hidden = true;
  $("found").hidden = false;
  const characters = Array.from(said.text), parts = [];  // places count whole characters: an emoji is two of a string's
  const between = (start, end) => document.createTextNode(characters.slice(start, end).join(""));
  let place = 0;
  for (const entity of said.entities) {
    parts.push(between(place, entity.start), marked(entity, state.model.types));
    place = entity.end;
  }
  parts.push(between(place));
  $("marked").dataset.text = said.text;
  $("marked").replaceChildren(...parts);
  $("none").hidden = said.entities.length > 0;
  $("table").hidden = !said.entities.length;
  $("rows").replaceChildren(...said.entities.map(row));
  const kept = said.entities.filter((entity) => entity.confidence >= least()).length;
  $("kept").textContent = said.entities.length ? `${kept} of ${said.entities.length} entities are kept.` : "";
}

function beginSentence(model) {
  $("sentence").hidden = false;
  $("entities").hidden = false;
  $("rule").hidden = true;
  $("other").hidden = true;
  $("waiting").textContent = "The sentence and its entities will be here.";
  for (const name of ["text", "type", "confidence", ...model.measures]) {
    $("heads").append(made("th", name === "text" || name === "type" ? "" : "number", name));
  }
  for (const name of ["confidence", ...model.measures]) {
    const label = made("label"), choice = made("input");
    Object.assign(choice, { type: "radio", name: "colour", value: name, checked: name === "confidence" });
    choice.addEventListener("change", () => { sentence.by = name; showSentence(); });
    label.append(choice, made("span", "", name));
    $("colours").append(label);
  }
  $("sentence").addEventListener("submit", askText);
  $("least").addEventListener("input", showSentence);
  showSentence();
}
